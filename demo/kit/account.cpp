#include "demo/kit/account.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard::demo {

Account::Account(Harness& harness, const std::string& storage, const std::string& place, std::string resource)
    : harness_{harness}, resource_{std::move(resource)} {
  const auto url = Url::parse(storage);
  if (place.empty())
    client_ = clients_of(url).open_raw(url);
  else
    client_ = clients_of(url).open_fenced(url, place);
  client_->make_place();
  client_->write(resource_, std::to_string(initial));
  harness.open_account(initial);
}

Account::~Account() {
  try {
    client_->remove(resource_);
  } catch (const std::exception& error) {
    cli::complain(fmt::format("demo: {}", error.what()));
  }
}

std::optional<std::int64_t> Account::balance_if_any() {
  const auto body = client_->read(resource_);
  return body ? parse_decimal(*body) : std::nullopt;
}

void Account::reset(const std::string& actor, std::string_view why) {
  client_->write(resource_, std::to_string(initial));
  harness_.note({.actor = actor,
                 .what = fmt::format("the account is at {} again; {}", initial, why),
                 .stored = initial});
}

Fixture::Fixture(Harness& harness, const ClientOptions& options_of_a, const ClientOptions& options_of_b)
    : balance{harness, options_of_a.storage, options_of_a.place, options_of_a.resource},
      a{harness, "client A", options_of_a},
      b{harness, "client B", options_of_b} {
  harness.restart_clock();
}

void initialise_fences(Harness& harness, const std::string& storage,
                       const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"fence", "init", "--storage", storage};
  command.insert(command.end(), arguments.begin(), arguments.end());
  harness.run_guard(std::move(command));
}

}  // namespace fenceguard::demo
