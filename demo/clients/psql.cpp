#include "demo/clients/psql.hpp"

#include <fmt/format.h>

#include <boost/json/parse.hpp>

#include "demo/kit/client_process.hpp"
#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard::demo {
namespace {

constexpr std::string_view mark = "--end of the answer--";
constexpr std::string_view error_mark = "ERROR:  ";
constexpr std::string_view detail_mark = "DETAIL:  ";

}  // namespace

void Psql::connect(const Reply& request) {
  Command command{.program = "psql",
                  .package = "postgresql-client",
                  .arguments = {"-XqtA"},
                  .environment = options_.environment,
                  .log_file = "/dev/stdout"};  // errors stand where answers do
  if (request.contains("token"))
    command.environment["PGOPTIONS"] =
        fmt::format(R"(-c fenceguard.session_claims=[{{"resource":"{}","token":"{}","holder":"{}"}}])",
                    options_.resource, number_at(request, "token"), text_at(request, "holder"));
  process_ = harness_.start(std::move(command));
}

void Psql::ask(const Reply& request) {
  is_read_ = text_at(request, "do") != "write";
  if (is_read_) {
    connect(request);
    process_->send_line(
        fmt::format("SELECT body FROM {} WHERE path = '{}';", options_.table, options_.resource));
  } else {
    process_->send_line(fmt::format("UPDATE {} SET body = '{}' WHERE path = '{}';", options_.table,
                                    number_at(request, "balance"), options_.resource));
  }
  process_->send_line(fmt::format("\\echo {}", mark));
}

Reply Psql::answer() {
  std::string body, error;
  Reply reply{{"verdict", "admitted"}};
  for (auto line = process_->receive_line(); line != mark; line = process_->receive_line()) {
    if (line.starts_with(error_mark)) {
      error = line.substr(error_mark.size());
    } else if (line.starts_with(detail_mark) && error.starts_with("the claim to ")) {
      const auto detail = boost::json::parse(line.substr(detail_mark.size())).as_object();
      reply["verdict"] = detail.at("verdict");
      reply["highest"] = parse_decimal(text_at(detail, "highest")).value_or(0);
    } else if (error.empty()) {
      body = line;
    }
  }
  if (error.empty() && is_read_) reply["balance"] = balance_in(body);
  if (!error.empty() && !reply.contains("highest"))
    throw Unavailable(fmt::format("psql was answered: {}", error));
  return reply;
}

}  // namespace fenceguard::demo
