// Tests of what needs no agent. Every check that fails is told; the exit code says whether there was one.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "hopyard/hopyard.h"
#include "json.h"
#include "lease.h"
#include "metrics.h"
#include "outbox.h"

namespace {

int failures = 0;

#define CHECK(condition) \
    ((condition) ? void() : (++failures, void(std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition))))

/// The message of what `act` throws; empty: nothing, or something else.
template <class Expected>
std::string thrown(const std::function<void()>& act) {
    try {
        act();
    } catch (const Expected& error) {
        return error.what();
    }
    return "";
}

bool says(const std::string& message, const std::string& part) { return message.find(part) != std::string::npos; }

void hyperparameters_have_types() {
    const auto given = hopyard::Hyperparameters::parse(
        R"({"lr": 0.5, "units": 32, "half": 16.0, "name": "a\u00e9\ud83d\ude00", "on": true, "none": null,
            "layers": [1, 2, 3], "model": {"depth": 4, "kind": {"x": 1}}, "a.b": 7, "bad": NaN, "large": 12345678901234567890})");
    CHECK(given.get<double>("lr") == 0.5);
    CHECK(given.get<float>("units") == 32.0F);
    CHECK(given.get<int>("units") == 32 && given.get<std::uint8_t>("units") == 32);
    CHECK(given.get<int>("half") == 16);
    CHECK(given.get<std::string>("name") == "a\xC3\xA9\xF0\x9F\x98\x80");
    CHECK(given.get<bool>("on"));
    CHECK((given.get<std::vector<int>>("layers") == std::vector<int>{1, 2, 3}));
    CHECK((given.get<std::vector<double>>("layers") == std::vector<double>{1, 2, 3}));
    CHECK(given.get<int>("model.depth") == 4 && given.get<int>("model.kind.x") == 1 && given.get<int>("a.b") == 7);
    CHECK(given.get<hopyard::Value>("none").is_null());
    CHECK(std::isnan(given.get<double>("bad")));
    CHECK(given.get<double>("large") == 12345678901234567890.0);
    CHECK(given.get<int>("missing", 3) == 3 && given.get<int>("units", 3) == 32);
    CHECK(!given.has("model.width") && !given.has("units.more") && given.has("none"));
}

void what_does_not_fit_is_told() {
    using hopyard::HyperparameterError;
    const auto given = hopyard::Hyperparameters::parse(R"({"lr": 0.5, "units": 300, "layers": [1, "two"], "less": -1})");
    const auto message = [&](auto kind, const std::string& name) {
        return thrown<HyperparameterError>([&] { given.get<decltype(kind)>(name); });
    };
    CHECK(message(0, "rate") == "there is no hyperparameter 'rate'; the job has: layers, less, lr, units");
    CHECK(message(0, "lr") == "hyperparameter 'lr' is 0.5; the program wants a whole number from -2147483648 to 2147483647");
    CHECK(says(message(std::uint8_t{}, "units"), "'units' is 300; the program wants a whole number from 0 to 255"));
    CHECK(says(message(std::size_t{}, "less"), "from 0 to 9223372036854775807"));
    CHECK(says(message(true, "units"), "true or false"));
    CHECK(says(message(std::string(), "units"), "a text"));
    CHECK(says(message(0.0, "layers"), R"('layers' is [1, "two"]; the program wants a number)"));
    CHECK(says(message(std::vector<int>(), "layers"), R"('layers[1]' is "two")"));
    CHECK(says(message(std::vector<int>(), "lr"), "a list"));
    CHECK(says(thrown<HyperparameterError>([] { hopyard::Hyperparameters::parse("[1]"); }), "found '[1]'"));
    CHECK(says(thrown<HyperparameterError>([] { hopyard::Hyperparameters::parse("{\"a\": }"); }), "no value at character 7"));
}

void damaged_json_is_refused() {
    for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "{a: 1}", "01", "1.", "-", "+1", "\"\\x\"", "\"\\u12g4\"", "\"a", "nul", "1 2",
                             "\"\n\"", "[1 2]", "1e", "--1", "0x10"}) {
        CHECK(!thrown<hopyard::json::SyntaxError>([&] { hopyard::json::parse(text); }).empty());
    }
    CHECK(!thrown<hopyard::json::SyntaxError>([] { hopyard::json::parse(std::string(100000, '[')); }).empty());
}

void metrics_are_checked() {
    using hopyard::UsageError;
    const auto message = [](const hopyard::Metrics& metrics) {
        return thrown<UsageError>([&] { hopyard::detail::check_metrics(metrics, "it said"); });
    };
    CHECK(message({{"val/loss", 0.5}, {"\xC3\xA9", NAN}, {std::string(256, 'x'), INFINITY}}).empty());
    CHECK(says(message({{"", 1.0}}), "it said the metric name ''"));
    for (const char* name : {"a\nb", "\xFF", "\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80"}) {
        CHECK(!message({{name, 1.0}}).empty());
    }
    CHECK(!message({{std::string(257, 'x'), 1.0}}).empty());
    hopyard::Metrics many;
    for (int index = 0; index <= 1000; ++index) many[std::to_string(index)] = 0;
    CHECK(says(message(many), "1001 metrics; allowed: 1000"));
    CHECK(hopyard::detail::sendable("a\xFF" "b", 10) == "a\xEF\xBF\xBD" "b");
    CHECK(hopyard::detail::sendable("\xC3\xA9\xC3\xA9", 3) == "\xC3\xA9");
    CHECK(hopyard::detail::shown({{"x", 0.1}, {"y", 3}}) == "x=0.1 y=3");
}

void a_silent_agent_is_noticed_but_not_by_who_was_stopped_himself() {
    hopyard::detail::LeaseWatch watch(0);
    CHECK(!watch.expired(1) && watch.tick_seconds() == 1);
    watch.renew(4, 1);
    CHECK(watch.tick_seconds() == 0.5);
    for (double now = 1; now <= 5; now += 0.5) CHECK(!watch.expired(now));
    CHECK(watch.expired(5.5));
    watch.heard(5.5);
    CHECK(!watch.expired(20));  // It slept: nobody could be heard.
    for (double now = 20.5; now <= 24; now += 0.5) CHECK(!watch.expired(now));
    CHECK(watch.expired(24.5));
}

hopyard::v1::Report report_at(std::int64_t position) {
    hopyard::v1::Report report;
    report.set_position(position);
    return report;
}

void reports_go_out_together_and_in_order() {
    hopyard::detail::Outbox outbox;
    for (int position = 1; position <= 3; ++position) outbox.send(report_at(position), true);
    hopyard::v1::AttachRequest taken;
    taken.mutable_snapshot_taken()->mutable_snapshot()->set_position(3);
    outbox.send(taken);
    outbox.send(report_at(4), false);
    const auto first = outbox.take(), second = outbox.take(), third = outbox.take();
    CHECK(first && first->reports().reports_size() == 3 && first->reports().reports(2).position() == 3);
    CHECK(second && second->snapshot_taken().snapshot().position() == 3);
    CHECK(third && third->report().position() == 4);
    for (int position = 0; position < 1200; ++position) outbox.send(report_at(position), true);
    outbox.close();
    std::int64_t next = 0;
    while (const auto request = outbox.take()) {
        const bool single = request->has_report();
        CHECK(single || request->reports().reports_size() <= 500);
        if (single) CHECK(request->report().position() == next++);
        for (const auto& report : request->reports().reports()) CHECK(report.position() == next++);
    }
    CHECK(next == 1200);
}

void who_reports_too_much_waits_for_who_sends() {
    hopyard::detail::Outbox outbox;
    std::thread trains([&] {
        for (int position = 0; position < 10000; ++position) {
            outbox.wait_for_room();
            outbox.send(report_at(position), true);
        }
        outbox.close();
    });
    std::int64_t count = 0;
    while (const auto request = outbox.take()) count += request->has_report() ? 1 : request->reports().reports_size();
    trains.join();
    CHECK(count == 10000);
}

void silence_is_filled_with_signs_of_life() {
    hopyard::detail::Outbox outbox;
    const auto request = outbox.take();
    CHECK(request && request->has_heartbeat());
}

}  // namespace

int main() {
    hyperparameters_have_types();
    what_does_not_fit_is_told();
    damaged_json_is_refused();
    metrics_are_checked();
    a_silent_agent_is_noticed_but_not_by_who_was_stopped_himself();
    reports_go_out_together_and_in_order();
    who_reports_too_much_waits_for_who_sends();
    silence_is_filled_with_signs_of_life();
    if (failures == 0) std::puts("all is well");
    return failures == 0 ? 0 : 1;
}
