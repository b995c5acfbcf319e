#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace hopyard::detail {

File::File(const std::filesystem::path& path, int flags)
    : path_(path.string()), handle_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (handle_ < 0) fail("cannot be opened");
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), handle_(std::exchange(other.handle_, -1)) {}

File::~File() {
    if (handle_ >= 0) ::close(handle_);
}

File File::reading(const std::filesystem::path& path) { return File(path, O_RDONLY); }
File File::making(const std::filesystem::path& path) { return File(path, O_WRONLY | O_CREAT | O_EXCL); }
File File::appending(const std::filesystem::path& path) { return File(path, O_WRONLY | O_CREAT | O_APPEND); }

std::size_t File::read(char* data, std::size_t size) {
    while (true) {
        const ssize_t count = ::read(handle_, data, size);
        if (count >= 0) return static_cast<std::size_t>(count);
        if (errno != EINTR) fail("cannot be read");
    }
}

void File::write(std::string_view data) {
    while (!data.empty()) {
        const ssize_t count = ::write(handle_, data.data(), data.size());
        if (count >= 0) {
            data.remove_prefix(static_cast<std::size_t>(count));
        } else if (errno != EINTR) {
            fail("cannot be written");
        }
    }
}

void File::close() {
    if (::close(std::exchange(handle_, -1)) != 0) fail("cannot be written");
}

void File::fail(const char* what) const { throw std::system_error(errno, std::generic_category(), path_ + " " + what); }

std::string contents(const std::filesystem::path& path) {
    File file = File::reading(path);
    std::string all;
    char block[4096];
    while (const std::size_t count = file.read(block, sizeof block)) all.append(block, count);
    return all;
}

}  // namespace hopyard::detail
