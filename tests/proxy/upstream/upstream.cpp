#include "tests/proxy/upstream/upstream.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

namespace fenceguard::test {
namespace {

constexpr std::chrono::seconds limit{60};
constexpr std::chrono::milliseconds look_again{5};

std::string unhex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16));
  }
  return bytes;
}

// The log holds bytes as the first 256 characters of Unicode.
std::string narrow(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_pair = byte >= 0x80 && i + 1 < text.size();
    bytes += is_pair ? static_cast<char>((byte & 0x03U) << 6U | (text[i + 1] & 0x3F)) : text[i];
    if (is_pair) ++i;
  }
  return bytes;
}

UpstreamEvent parse_event(const std::string& line) {
  const auto members = boost::json::parse(line).as_object();
  const auto text = [&](std::string_view name) -> std::optional<std::string> {
    const auto* value = members.if_contains(name);
    if (value == nullptr || !value->is_string()) return std::nullopt;
    return std::string{value->as_string()};
  };
  const auto number = [&](std::string_view name) {
    const auto* value = members.if_contains(name);
    return value == nullptr ? 0 : value->to_number<std::int64_t>();
  };
  UpstreamEvent event;
  event.kind = text("event").value();
  event.n = number("n");
  event.time = members.at("time").to_number<double>();
  event.connection = number("connection");
  event.method = text("method").value_or("");
  event.path = text("path").value_or("");
  event.head = unhex(text("head").value_or(""));
  event.body = narrow(text("body").value_or(""));
  event.size = number("length");
  event.crc = static_cast<std::uint32_t>(number("crc"));
  event.token = text("token");
  event.destination = text("destination");
  event.status = static_cast<unsigned>(number("status"));
  event.reason = text("reason").value_or("");
  return event;
}

std::string make_folder() {
  auto name = (std::filesystem::temp_directory_path() / "fenceguard-upstream-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
  return name;
}

}  // namespace

Upstream::Upstream(const std::string& words) : words_{words}, folder_{make_folder()} {
  start();
}

Upstream::~Upstream() {
  process_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Upstream::start() {
  ++starts_;
  process_.emplace(ServerProcess::Command{
      .words = {"/usr/bin/python3", "-B", FENCEGUARD_SOURCE_DIR "/tests/kit/upstream.py", "--port",
                std::to_string(port()), "--do", words_, "--log", file("events")},
      .log = file("log")});
  process_->start([this] { return is_up(); });
}

bool Upstream::is_up() const {
  std::ifstream log{file("log")};
  std::size_t starts = 0;
  for (std::string line; std::getline(log, line);) {
    if (line.starts_with("listening ") && !log.eof()) ++starts;
  }
  return starts == starts_;
}

std::vector<UpstreamEvent> Upstream::events(const std::string& kind) const {
  std::vector<UpstreamEvent> found;
  std::ifstream log{file("events")};
  for (std::string line; std::getline(log, line) && !log.eof();) {
    auto event = parse_event(line);
    if (kind.empty() || event.kind == kind) found.push_back(std::move(event));
  }
  return found;
}

std::vector<UpstreamEvent> Upstream::wait_for(const std::string& kind, std::size_t count) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    auto found = events(kind);
    if (found.size() >= count) return found;
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error{fmt::format("the upstream did not log '{}' {} times", kind, count)};
    std::this_thread::sleep_for(look_again);
  }
}

std::vector<std::string> fallen(const std::vector<UpstreamEvent>& applied,
                                const std::function<std::int64_t(const UpstreamEvent&)>& token_of) {
  std::map<std::string, std::int64_t> highest;
  std::vector<std::string> found;
  for (const auto& event : applied) {
    const auto token = token_of(event);
    auto& mark = highest[event.path];
    if (token < mark) found.push_back(fmt::format("{}: {} after {}", event.path, token, mark));
    mark = std::max(mark, token);
  }
  return found;
}

}  // namespace fenceguard::test
