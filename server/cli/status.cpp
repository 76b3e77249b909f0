#include <fmt/format.h>
#include <unistd.h>

#include <boost/json/serialize.hpp>
#include <cstdio>
#include <thread>

#include "guard/error.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/target/answer_body.hpp"
#include "server/cli/target/open_target.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard::cli {
namespace {

constexpr int leases_shown = 10;
constexpr int lanes_shown = 10;
constexpr std::chrono::milliseconds answer_max{5'000};
constexpr std::chrono::seconds look_again_after{1};

std::string text_or(const json::object& body, std::string_view name, std::string_view otherwise = "") {
  const auto* value = body.if_contains(name);
  const bool is_text = value != nullptr && value->is_string();
  return shown(is_text ? std::string_view{value->get_string()} : otherwise);
}

json::object object_in(const json::object& body, std::string_view name) {
  const auto* value = body.if_contains(name);
  return value != nullptr && value->is_object() ? value->get_object() : json::object{};
}

// '3 d 4 h', '2 min 5 s', '8 s': no more than two units.
std::string span_text(std::int64_t ms) {
  const auto seconds = (ms + 999) / 1000;
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  if (seconds < 86'400) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{} d {} h", seconds / 86'400, seconds / 3600 % 24);
}

std::string span_in(const json::object& body, std::string_view name) {
  return span_text(number_in(body, name).value_or(0));
}

// The time of day in what utc_text() makes.
std::string clock_in(const json::object& body, std::string_view name) {
  const auto text = text_or(body, name);
  return text.size() > 19 ? text.substr(11, 8) : text;
}

// What one look brought.
struct Look {
  json::object status;
  json::object leases;        // a page of them
  std::string why_no_leases;  // a sentence, where the guard lists none
};

Look look(const ControlClient& client) {
  const auto answer = client.send({.method = "GET", .target = "/v1/status", .timeout = answer_max});
  if (answer.status != 200)
    throw Unavailable("this guard does not tell its status: it is of an older version");
  Look found{answer.body, {}, {}};
  try {
    const auto target = fmt::format("/v1/leases?limit={}", leases_shown);
    found.leases = client.send({.method = "GET", .target = target, .timeout = answer_max}).body;
  } catch (const Unavailable& error) {
    found.why_no_leases = error.what();
  }
  return found;
}

std::string json_line(Look found) {
  auto& body = found.status;
  if (found.why_no_leases.empty()) {
    body["leases"] = found.leases["leases"];
    body["leases_has_more"] = has_more_in(found.leases);
  } else {
    body["leases"] = nullptr;
    body["leases_detail"] = found.why_no_leases;
  }
  return json::serialize(body) + "\n";
}

std::string heading(const json::object& status, const std::string& server) {
  auto text = fmt::format("fenceguard {} at {}: {}, up {}\n", text_or(status, "version"), shown(server),
                          text_or(status, "state"), span_in(status, "uptime_ms"));
  const auto detail = text_or(status, "detail");
  if (!detail.empty()) text += fmt::format("  {}\n", detail);
  const auto left = number_in(status, "quarantined_ms");
  if (left) text += fmt::format("  every resource is quarantined, {} left\n", span_text(*left));
  return text +
         fmt::format("storage   {}\nsource    {}\nfences    {}, highest token {}; {} requests in flight\n",
                     text_or(status, "storage"), text_or(status, "source", "none"),
                     number_in(status, "resources").value_or(0), text_or(status, "highest"),
                     number_in(status, "in_flight").value_or(0));
}

std::string verdicts(const json::object& status) {
  const auto window = object_in(status, "verdicts");
  auto text = fmt::format("\nVerdicts of the last {}\n ", span_in(window, "window_ms"));
  for (const auto& [word, count] : object_in(window, "counts")) {
    const auto times = count.is_int64() ? count.get_int64() : 0;
    if (times > 0 || word == "admitted") text += fmt::format(" {} {} ", std::string_view{word}, times);
  }
  while (text.ends_with(' ')) text.pop_back();
  return text + "\n";
}

std::string lanes(const json::object& status) {
  const auto figures = object_in(status, "lanes");
  const auto count = [&](std::string_view name) { return number_in(figures, name).value_or(0); };
  auto text = fmt::format("\nLanes: {} in quarantine, {} writes in flight, {} claims wait\n",
                          count("quarantined"), count("in_flight"), count("waiting"));
  if (count("cuts_owed") > 0)
    text +=
        fmt::format("  cuts owed: {} (nothing enters before; see event=fence_method in the guard's log)\n",
                    count("cuts_owed"));
  const auto all = entries_in(figures, "in_quarantine");
  int lines = 0;
  for (const auto& lane : all) {
    if (++lines > lanes_shown) break;
    text += fmt::format("  {}  {} left\n", text_or(lane, "resource"), span_in(lane, "quarantined_ms"));
  }
  if (all.size() > lanes_shown) text += "  … and more\n";
  return text;
}

std::string refusals(const json::object& status) {
  std::string text = "\nLast refusals\n";
  const auto all = entries_in(status, "refusals");
  for (const auto& event : all) {
    text += fmt::format("  {}  {:<11} {:<7} {}", clock_in(event, "at"), text_or(event, "verdict"),
                        text_or(event, "operation"), text_or(event, "resource"));
    if (event.contains("token")) text += fmt::format("  token {}", text_or(event, "token"));
    if (event.contains("highest")) text += fmt::format(", highest {}", text_or(event, "highest"));
    if (event.contains("client")) text += fmt::format("  from {}", text_or(event, "client"));
    text += '\n';
  }
  if (all.empty()) return text + "  none\n";
  return text + fmt::format("  (UTC; it is {} there)\n", clock_in(status, "now"));
}

std::string leases(const Look& found) {
  std::string text = "\nLeases\n";
  if (!found.why_no_leases.empty()) return text + fmt::format("  {}\n", shown(found.why_no_leases));
  const auto all = entries_in(found.leases, "leases");
  for (const auto& lease : all) {
    text += fmt::format("  {}  token {}", text_or(lease, "resource"), text_or(lease, "token"));
    if (lease.contains("expires_in_ms")) text += fmt::format("  {} left", span_in(lease, "expires_in_ms"));
    text += '\n';
  }
  if (all.empty()) text += "  none\n";
  if (has_more_in(found.leases)) text += "  … and more: 'fenceguard lease list'\n";
  return text;
}

std::string screen(const Look& found, const std::string& server) {
  return heading(found.status, server) + verdicts(found.status) + lanes(found.status) +
         refusals(found.status) + leases(found);
}

int status(const Settings& settings) {
  const auto client = open_server(settings);
  const auto server = settings.text("server");
  const auto told = [&] {
    auto found = look(client);
    return settings.is_on("json") ? json_line(std::move(found)) : screen(found, server);
  };
  if (!settings.is_on("watch")) {
    print_out(told());
    return exit_done;
  }
  // What cannot be asked once is wrong usage, or a guard that is not there; later it is news.
  std::string text = told();
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  for (;;) {
    const std::string_view home = is_terminal && !settings.is_on("json") ? "\x1b[H\x1b[J" : "";
    print_out(fmt::format("{}{}", home, text));
    std::this_thread::sleep_for(look_again_after);
    try {
      text = told();
    } catch (const Error& error) {
      const auto sentence = fmt::format("no answer from {}: {}", server, error.what());
      text = settings.is_on("json") ? json::serialize(json::object{{"detail", sentence}}) + "\n"
                                    : shown(sentence) + "; asking again\n";
    }
  }
}

}  // namespace

Command status_command() {
  auto server = server_setting;
  server.fallback = "http://127.0.0.1:7421";
  const Setting watch{.name = "watch",
                      .kind = Kind::flag,
                      .help = "go on until interrupted, once a second; with --json a line each time"};
  return {.name = "status",
          .synopsis = "[--server URL] [--watch] [--json]",
          .summary = "show what a running guard does: verdicts, refusals, leases, lanes in quarantine",
          .settings = {server, server_token_setting, server_token_file_setting, watch, json_setting,
                       config_setting},
          .run = status,
          .notes =
              "Exit 0 where the guard answered, whatever it said: /readyz is for probes. Exit 3 where it did "
              "not. Never a holder's name. The same in a browser: /ui on the control side."};
}

}  // namespace fenceguard::cli
