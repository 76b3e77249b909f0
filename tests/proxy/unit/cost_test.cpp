// What a header block costs, from its bytes to the request that goes on, or to the answer that is read: twice
// the bytes may cost twice the time and no more, whatever the fields. Measured as the processor's time of
// this thread for one block against that for sixteen blocks of a sixteenth: one for what is linear, sixteen
// for what is quadratic.

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "server/data/conditions.hpp"
#include "server/http/wire/request_reader.hpp"
#include "server/proxy/upstream/request_writer.hpp"
#include "server/proxy/upstream/response_parser.hpp"
#include "tests/conformance/scale.hpp"

namespace fenceguard::proxy {
namespace {

constexpr std::size_t block_bytes = 64 * 1024;
constexpr std::size_t parts = 16;
// Far from both. What a sanitizer adds is not linear; under one the parsers are run and not measured.
constexpr double ratio_max = test::slowdown == 1 ? 5 : 1'000;

std::int64_t thread_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

std::string times(const std::string& text, std::size_t bytes) {
  std::string all;
  while (all.size() + text.size() <= bytes) all += text;
  return all;
}

// A kind of header block, as large as it is asked for.
struct Shape {
  const char* name;
  std::string (*fields)(std::size_t bytes);
};

std::string line(const std::string& name, const std::string& value) {
  return name + ": " + value + "\r\n";
}

const Shape shapes[] = {
    {"many short fields", [](std::size_t n) { return times("a:\r\n", n); }},
    {"one long field", [](std::size_t n) { return line("A", std::string(n, 'x')); }},
    {"one Connection with many options", [](std::size_t n) { return line("Connection", times("a,", n)); }},
    {"many Connections with an option each", [](std::size_t n) { return times("Connection: a\r\n", n); }},
    {"short fields and many options",
     [](std::size_t n) { return times("bb:\r\n", n / 2) + line("Connection", times("aa,", n / 2)); }},
    {"short fields and as many options as are taken",
     [](std::size_t n) { return line("Connection", times("aa,", 3 * 64)) + times("bb:\r\n", n); }},
    {"options that are none", [](std::size_t n) { return line("Connection", times(" ,\t,", n)); }},
    {"names that are nearly known", [](std::size_t n) { return times("X-HTTP-Method-Overridd: x\r\n", n); }},
    {"names under which nothing goes on", [](std::size_t n) { return times("X.Original~URL: x\r\n", n); }},
    {"many proxies", [](std::size_t n) { return times("X-Forwarded-For: 192.0.2.1\r\n", n); }},
    {"many proxies in many fields",
     [](std::size_t n) { return times("Via: 1.1 x\r\nForwarded: for=x\r\nX-Forwarded-For: x\r\n", n); }},
    {"quotes and escapes", [](std::size_t n) { return line("Forwarded", times("for=\"\\\"\",", n)); }},
    {"quotes in many fields", [](std::size_t n) { return times("Forwarded: for=\"\\\"\"\r\n", n); }},
    {"claims", [](std::size_t n) { return times("Fencing-Destination-Token: 1\r\n", n); }},
    {"depths", [](std::size_t n) { return times("Depth: 0\r\nOverwrite: F\r\n", n); }},
    {"tags that are wanted", [](std::size_t n) { return line("If-Match", times("\"a\",", n)); }},
    {"tags in many fields", [](std::size_t n) { return times("If-None-Match: \"a\"\r\n", n); }},
    {"conditions on many paths", [](std::size_t n) { return line("If", times("</a> (<b:c>)", n)); }},
    {"conditions on few paths", [](std::size_t n) { return line("If", times("(<b:c> [\"d\"])", n)); }},
    {"brackets alone", [](std::size_t n) { return line("If", times("(", n)); }},
    {"many terms of a kept connection",
     [](std::size_t n) { return line("Keep-Alive", times("timeout=1,", n)); }},
    {"references", [](std::size_t n) { return times("Location: http://store/a\r\n", n); }},
};

void take_request(const std::string& fields) {
  const auto block = "DELETE /a HTTP/1.1\r\nHost: guard\r\nFencing-Token: 5\r\n" + fields + "\r\n";
  http::HeadScanner scanner;
  for (std::size_t come = 0; come < block.size(); come += 1024)
    (void)scanner.scan(std::string_view{block}.substr(0, come));
  ASSERT_EQ(scanner.scan(block), http::HeadScanner::State::complete);
  http::RequestReader reader{0};
  ASSERT_FALSE(reader.read_head(block));
  (void)parse_conditions(reader.request().fields);
  const auto parsed = parse_operation(reader.request(), {});
  const auto* operation = std::get_if<Operation>(&parsed);
  if (operation == nullptr) return;
  std::string out;
  write_request_head(out, *operation, reader.request().fields, {"192.0.2.7"}, {"store", "/base", true, false},
                     {});
}

void take_answer(const std::string& fields) {
  const auto block = "HTTP/1.1 200 OK\r\n" + fields + "\r\n";
  const auto head = read_answer_head(block);
  if (!head) return;
  std::size_t passed = 0;
  for (const auto& field : head->fields)
    passed += passes_to_client(field.name) && !head->connection.lists(field.name) ? 1 : 0;
  EXPECT_LE(passed, head->fields.size());
}

double cost(void (*take)(const std::string&), const std::string& fields, std::size_t count) {
  std::int64_t best = 0;
  for (int i = 0; i < 9; ++i) {
    const auto begun = thread_nanoseconds();
    for (std::size_t n = 0; n < count; ++n) take(fields);
    const auto spent = thread_nanoseconds() - begun;
    best = i == 0 ? spent : std::min(best, spent);
  }
  return static_cast<double>(best);
}

TEST(CostTest, AHeaderBlockCostsWhatItsBytesCost) {
  for (const auto& shape : shapes) {
    for (auto* take : {take_request, take_answer}) {
      const auto whole = cost(take, shape.fields(block_bytes), 1);
      const auto in_parts = cost(take, shape.fields(block_bytes / parts), parts);
      EXPECT_LT(whole / in_parts, ratio_max)
          << shape.name << (take == take_answer ? " in an answer: " : " in a request: ") << whole / 1000
          << " us against " << in_parts / 1000 << " us";
    }
  }
}

}  // namespace
}  // namespace fenceguard::proxy
