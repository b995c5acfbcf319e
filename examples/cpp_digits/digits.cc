// A small neural network on scikit-learn's handwritten digits (1797 images of 8 x 8), in plain C++.
//
//     ./digits --hopyard-until=10       trains one configuration, without a cluster
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "hopyard/hopyard.h"

namespace {

constexpr std::size_t pixels = 64, classes = 10;

struct Image {
    std::array<double, pixels> shade;  // 0 .. 1
    std::size_t label;
};

/// All images; every fifth is held out.
std::vector<Image> read_images(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("no " + path + ": run  python make_data.py");
    std::vector<Image> images;
    for (std::string line; std::getline(file, line);) {
        std::replace(line.begin(), line.end(), ',', ' ');
        std::istringstream numbers(line);
        Image image{};
        for (double& shade : image.shade) {
            numbers >> shade;
            shade /= 16;
        }
        if (!(numbers >> image.label) || image.label >= classes) throw std::runtime_error(path + ": a damaged line: " + line);
        images.push_back(image);
    }
    return images;
}

/// A layer of weights with a bias for each output, trained by gradient descent with momentum.
struct Layer {
    std::size_t inputs, outputs;
    std::vector<double> weights, speed;

    Layer(std::size_t from, std::size_t to, std::mt19937_64& random)
        : inputs(from), outputs(to), weights((from + 1) * to), speed((from + 1) * to) {
        std::normal_distribution<double> start(0, std::sqrt(2.0 / static_cast<double>(from)));
        for (double& weight : weights) weight = start(random);
    }

    double* row(std::vector<double>& matrix, std::size_t output) const { return &matrix[output * (inputs + 1)]; }

    void forward(const double* in, double* out) {
        for (std::size_t output = 0; output < outputs; ++output) {
            const double* weight = row(weights, output);
            double sum = weight[inputs];
            for (std::size_t input = 0; input < inputs; ++input) sum += weight[input] * in[input];
            out[output] = sum;
        }
    }

    /// Add one example to the gradient; `error` is the error of the outputs.
    void backward(const double* in, const double* error, std::vector<double>& gradient) const {
        for (std::size_t output = 0; output < outputs; ++output) {
            double* slope = row(gradient, output);
            for (std::size_t input = 0; input < inputs; ++input) slope[input] += error[output] * in[input];
            slope[inputs] += error[output];
        }
    }

    void step(const std::vector<double>& gradient, double rate, double momentum) {
        for (std::size_t index = 0; index < weights.size(); ++index) {
            speed[index] = momentum * speed[index] - rate * gradient[index];
            weights[index] += speed[index];
        }
    }
};

class Digits : public hopyard::Trainer {
  public:
    explicit Digits(const hopyard::Context& context)
        : random_(static_cast<std::uint64_t>(context.seed)),
          rate_(context.hyperparameters.get<double>("lr", 0.1)),
          momentum_(context.hyperparameters.get<double>("momentum", 0.9)),
          batch_(context.hyperparameters.get<std::size_t>("batch_size", 32)),
          first_(pixels, context.hyperparameters.get<std::size_t>("units", 32), random_),
          second_(first_.outputs, classes, random_),
          hidden_(first_.outputs),
          back_(first_.outputs) {
        std::size_t index = 0;
        for (const Image& image : read_images("digits.csv")) (index++ % 5 == 0 ? held_out_ : training_).push_back(image);
    }

    /// One epoch.
    hopyard::Metrics train() override {
        std::vector<std::size_t> order(training_.size());
        for (std::size_t index = 0; index < order.size(); ++index) order[index] = index;
        std::shuffle(order.begin(), order.end(), random_);
        double loss = 0;
        for (std::size_t begin = 0; begin < order.size(); begin += batch_) {
            const std::size_t end = std::min(begin + batch_, order.size());
            std::vector<double> one(first_.weights.size()), two(second_.weights.size());
            for (std::size_t index = begin; index < end; ++index) loss += learn(training_[order[index]], one, two);
            const double rate = rate_ / static_cast<double>(end - begin);
            first_.step(one, rate, momentum_);
            second_.step(two, rate, momentum_);
        }
        std::size_t right = 0;
        for (const Image& image : held_out_) right += classify(image) == image.label ? 1 : 0;
        return {{"loss", loss / static_cast<double>(order.size())},
                {"accuracy", static_cast<double>(right) / static_cast<double>(held_out_.size())}};
    }

    // All state that changes during training, without hyperparameters.
    void save(const std::filesystem::path& folder) override {
        std::ofstream file(folder / "network");
        file << std::hexfloat << random_;
        for (const Layer* layer : {&first_, &second_}) {
            write(file, layer->weights);
            write(file, layer->speed);
        }
        if (!file.flush()) throw std::runtime_error("the network cannot be written");
    }

    void load(const std::filesystem::path& folder) override {
        std::ifstream file(folder / "network");
        file >> random_;
        for (Layer* layer : {&first_, &second_}) {
            read(file, layer->weights);
            read(file, layer->speed);
        }
        if (!file) throw std::runtime_error("the network cannot be read");
    }

  private:
    static void write(std::ostream& file, const std::vector<double>& numbers) {
        for (const double number : numbers) file << ' ' << number;
    }

    static void read(std::istream& file, std::vector<double>& numbers) {
        std::string text;  // Streams write hexadecimal numbers and do not read them.
        for (double& number : numbers) {
            if (file >> text) number = std::strtod(text.c_str(), nullptr);
        }
    }

    const std::array<double, classes>& scores(const Image& image) {
        first_.forward(image.shade.data(), hidden_.data());
        for (double& activity : hidden_) activity = std::max(activity, 0.0);
        second_.forward(hidden_.data(), out_.data());
        return out_;
    }

    std::size_t classify(const Image& image) {
        const auto& found = scores(image);
        return static_cast<std::size_t>(std::max_element(found.begin(), found.end()) - found.begin());
    }

    /// Add an image to the gradients of both layers; returns its loss.
    double learn(const Image& image, std::vector<double>& one, std::vector<double>& two) {
        scores(image);
        const double most = *std::max_element(out_.begin(), out_.end());
        double sum = 0;
        for (double& score : out_) sum += score = std::exp(score - most);
        for (double& score : out_) score /= sum;
        const double loss = -std::log(out_[image.label] + 1e-300);
        out_[image.label] -= 1;
        for (std::size_t unit = 0; unit < hidden_.size(); ++unit) {
            back_[unit] = 0;
            for (std::size_t label = 0; label < classes; ++label) {
                back_[unit] += second_.row(second_.weights, label)[unit] * out_[label];
            }
            if (hidden_[unit] <= 0) back_[unit] = 0;
        }
        second_.backward(hidden_.data(), out_.data(), two);
        first_.backward(image.shade.data(), back_.data(), one);
        return loss;
    }

    std::mt19937_64 random_;
    double rate_, momentum_;
    std::size_t batch_;
    Layer first_, second_;
    std::vector<double> hidden_, back_;
    std::array<double, classes> out_{};
    std::vector<Image> training_, held_out_;
};

}  // namespace

int main(int argc, char** argv) { return hopyard::run<Digits>(argc, argv); }
