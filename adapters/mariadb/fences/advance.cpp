#include "adapters/mariadb/fences/advance.hpp"

#include <fmt/format.h>

#include "adapters/mariadb/errors.hpp"
#include "adapters/mariadb/fences/holder_cutter.hpp"
#include "adapters/mariadb/fences/rulings.hpp"
#include "guard/error.hpp"
#include "guard/support/fence_text.hpp"

namespace fenceguard::mariadb {
namespace {

constexpr std::chrono::seconds wait_after_cut{5};
constexpr unsigned column_access_denied = 1143;

}  // namespace

Rows call_cutting(Connection& connection, const std::optional<Claim>& newer, std::chrono::seconds drain,
                  const std::function<Rows(std::chrono::seconds limit)>& call) {
  try {
    return call(drain);
  } catch (const ServerError& error) {
    if (error.number() != lock_wait_timeout || connection.address() == nullptr) throw;
  }
  HolderCutter cutter{*connection.address(), connection.id(), newer};
  try {
    return call(wait_after_cut);
  } catch (const ServerError& error) {
    const auto& objection = cutter.stop();
    if (error.number() != lock_wait_timeout || objection.empty()) throw;
    throw Unavailable(fmt::format("older transactions are still open, and nothing was done: {}", objection));
  }
}

Ruling advance_by(Connection& connection, const Claim& claim, const AdmitOptions& options,
                  const std::string& doing) {
  return mapped(Stage::at_commit, doing, [&] {
    const auto call = [&](std::chrono::seconds drain) {
      auto arguments = arguments_of(claim);
      arguments.push_back(std::to_string(drain.count()));
      arguments.push_back(bound_of(claim, options.jump_max));
      return connection.call("try_advance", arguments);
    };
    auto rows = options.cut ? call_cutting(connection, claim, options.drain, call) : call(options.drain);
    if (is_to_be_exempt(rows, claim, options.jump_max)) {
      const auto call_far = [&](std::chrono::seconds drain) {
        auto arguments = arguments_of(claim);
        arguments.push_back(std::to_string(drain.count()));
        return connection.call("try_advance_far", arguments);
      };
      try {
        rows =
            options.cut ? call_cutting(connection, claim, options.drain, call_far) : call_far(options.drain);
      } catch (const ServerError& error) {
        if (error.number() != table_access_denied && error.number() != column_access_denied) throw;
      }
    }
    auto ruling = ruling_of(rows, claim.without_sequence());
    if (ruling.verdict == Verdict::admitted) {
      ruling.changed = number_in(rows, 2) != 0;
      ruling.fence = Fence{claim.token, claim.holder, std::nullopt, false};
      const auto& row = rows.at(0);
      const auto told = row.size() > 3 ? std::optional{row[3].value_or("")} : std::nullopt;
      if (ruling.changed) ruling.overtaken = parse_overtaken(told, claim);
    }
    return ruling;
  });
}

}  // namespace fenceguard::mariadb
