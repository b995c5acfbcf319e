// Files whose errors keep their errno, as std::system_error.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace hopyard::detail {

class File {
  public:
    static File reading(const std::filesystem::path& path);
    /// A new file: there must be none of that name.
    static File making(const std::filesystem::path& path);
    static File appending(const std::filesystem::path& path);

    File(File&& other) noexcept;
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    File& operator=(File&&) = delete;
    ~File();

    /// Up to `size` bytes; 0 at its end.
    std::size_t read(char* data, std::size_t size);
    void write(std::string_view data);
    /// Say that it is written; errors show here at the latest.
    void close();

  private:
    File(const std::filesystem::path& path, int flags);
    [[noreturn]] void fail(const char* what) const;

    std::string path_;
    int handle_;
};

/// All of a file.
std::string contents(const std::filesystem::path& path);

}  // namespace hopyard::detail
