// Runs the fuzz target over the kept corpus, without libFuzzer: what it once found stays found. The corpus is
// a text, an input a line, in hexadecimal. With a folder as second argument each is written there too, as
// libFuzzer wants them.

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::uint8_t> bytes_of(const std::string& digits) {
  std::vector<std::uint8_t> bytes(digits.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    (void)std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, bytes[i], 16);
  return bytes;
}

void write(const std::string& file, const std::vector<std::uint8_t>& bytes) {
  std::ofstream stream{file, std::ios::binary};
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

int main(int count, char** values) {
  std::ifstream corpus{count > 1 ? values[1] : ""};
  std::size_t inputs = 0;
  for (std::string line; std::getline(corpus, line);) {
    const auto bytes = bytes_of(line);
    if (count > 2) write(fmt::format("{}/{:03}", values[2], inputs), bytes);
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    (void)LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++inputs;
  }
  std::printf("%zu inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
