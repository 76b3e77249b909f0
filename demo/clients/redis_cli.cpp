#include "demo/clients/redis_cli.hpp"

#include <fmt/format.h>

#include "demo/kit/client_process.hpp"
#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard::demo {
namespace {

// The number behind ' highest=' in a refusal.
std::int64_t highest_in(const std::string& refusal) {
  constexpr std::string_view name = " highest=";
  const auto at = refusal.find(name);
  if (at == refusal.npos) return 0;
  const auto begin = at + name.size();
  return parse_decimal(refusal.substr(begin, refusal.find(' ', begin) - begin)).value_or(0);
}

}  // namespace

RedisCli::RedisCli(Harness& harness, RedisCliOptions options) : options_{std::move(options)} {
  Command command{.program = "redis-cli", .package = "redis-tools", .arguments = options_.arguments};
  if (!options_.password.empty()) command.environment["REDISCLI_AUTH"] = options_.password;
  process_ = harness.start(std::move(command));
}

void RedisCli::ask(const Reply& request) {
  const bool has_claim = request.contains("token");
  if (text_at(request, "do") == "write") {
    asked_ = Asked::write;
    return process_->send_line(fmt::format("SET {} {}", options_.key, number_at(request, "balance")));
  }
  asked_ = has_claim ? Asked::balance_under_claim : Asked::balance;
  if (has_claim)
    process_->send_line(fmt::format("FENCE {} {} {}", options_.resource, number_at(request, "token"),
                                    text_at(request, "holder")));
  process_->send_line(fmt::format("GET {}", options_.key));
}

std::string RedisCli::receive_answer(std::string_view expected) {
  auto line = process_->receive_line();
  const bool is_balance = expected.empty() && parse_decimal(line);
  if (line != expected && !is_balance) (void)process_->receive_line();
  return line;
}

Reply RedisCli::answer() {
  Reply reply{{"verdict", "admitted"}};
  const auto said = asked_ == Asked::balance ? std::string{"OK"} : receive_answer("OK");
  if (asked_ != Asked::write) {
    const auto balance = receive_answer({});
    if (said == "OK") reply["balance"] = balance_in(balance);
  }
  if (said.starts_with("STALE ") || said.starts_with("CONFLICT ")) {
    reply["verdict"] = said.starts_with("STALE ") ? "stale" : "conflict";
    reply["highest"] = highest_in(said);
  } else if (said != "OK") {
    throw Unavailable(fmt::format("redis-cli was answered: {}", said));
  }
  return reply;
}

}  // namespace fenceguard::demo
