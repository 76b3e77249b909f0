#include "adapters/postgres/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <pqxx/pqxx>
#include <string>

#include "guard/error.hpp"

namespace fenceguard::postgres {
namespace {

// 'ERROR:  the fence is held\nDETAIL:  ...\nHINT:  End it.' as 'the fence is held (End it.)'.
std::string sentence(std::string_view text) {
  const auto line_at = [text](std::size_t begin) {
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  std::string_view first = line_at(0);
  for (const std::string_view severity : {"ERROR:", "FATAL:", "PANIC:", "WARNING:"}) {
    if (first.starts_with(severity)) first.remove_prefix(severity.size());
  }
  first.remove_prefix(std::min(first.size(), first.find_first_not_of(' ')));
  constexpr std::string_view label = "\nHINT:  ";
  const auto hint = text.find(label);
  if (hint == std::string_view::npos) return std::string{first};
  return fmt::format("{} ({})", first, line_at(hint + label.size()));
}

bool is_any_class(std::string_view state, std::initializer_list<std::string_view> classes) noexcept {
  return std::ranges::any_of(classes, [state](std::string_view one) { return state.starts_with(one); });
}

// A lost connection, or a server that went away while it answered.
[[noreturn]] void raise_lost(Stage stage, std::string_view doing, const std::string& reason) {
  if (stage == Stage::before_commit) {
    throw Unavailable(fmt::format("{}: {}; nothing was committed", doing, reason));
  }
  throw OutcomeUnknown(fmt::format("{}: {}; it may or may not have taken effect", doing, reason));
}

// An error that the server itself answered: the statement, and its transaction, were rolled back.
[[noreturn]] void raise_answered(Stage stage, std::string_view doing, const std::string& state,
                                 const std::string& reason) {
  if (state == "ZF004") throw Implausible(fmt::format("{}: {}", doing, reason));
  if (!is_rolled_back(state)) raise_lost(stage, doing, reason);
  if (state == "2200H")  // a sequence is at its end
    throw Unavailable(fmt::format("{}: {}; 'fenceguard lease lower' sets the counter back", doing, reason));
  // Values that are no claim, no number, no text.
  if (is_any_class(state, {"22"})) throw InvalidInput(fmt::format("{}: {}", doing, reason));
  if (state == "3F000" || state == "42883" || state == "42P01") {
    throw Unavailable(
        fmt::format("{}: {}; install the fences with 'fenceguard sql postgres | psql', once per database",
                    doing, reason));
  }
  throw Unavailable(fmt::format("{}: {}; rolled back", doing, reason));
}

}  // namespace

bool is_rolled_back(std::string_view state) noexcept {
  // 40003 says itself that it does not know.
  return !state.empty() && state != "40003" && !is_any_class(state, {"57P", "58", "08", "XX"});
}

bool is_session_end(std::string_view state) noexcept {
  return is_any_class(state, {"57P", "25P03", "25P04"});
}

bool is_passing(std::string_view state) noexcept {
  return is_any_class(state, {"40", "53", "55", "57", "25P", "3F000"});
}

void raise_or_pass(Stage stage, std::string_view doing) {
  const auto state = current_state();
  if (!is_rolled_back(state) || is_passing(state) || state == "ZF004") raise_current(stage, doing);
  throw;
}

std::string_view current_state() noexcept {
  // Classes that libpqxx 6.4 names without keeping the state.
  thread_local std::string state;
  try {
    throw;
  } catch (const pqxx::statement_completion_unknown&) {
    state = "40003";
  } catch (const pqxx::transaction_rollback&) {
    state = "40000";
  } catch (const pqxx::sql_error& error) {
    state = error.sqlstate();
  } catch (...) {
    state.clear();
  }
  return state;
}

void raise_current(Stage stage, std::string_view doing) {
  // Most specific first: in libpqxx 6.4 statement_completion_unknown derives from transaction_rollback.
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const pqxx::statement_completion_unknown& error) {
    raise_lost(stage, doing, sentence(error.what()));
  } catch (const pqxx::in_doubt_error& error) {
    raise_lost(Stage::at_commit, doing, sentence(error.what()));
  } catch (const pqxx::broken_connection& error) {
    raise_lost(stage, doing, sentence(error.what()));
  } catch (const pqxx::transaction_rollback& error) {
    throw Unavailable(fmt::format("{}: {}; rolled back, try again", doing, sentence(error.what())));
  } catch (const pqxx::sql_error& error) {
    raise_answered(stage, doing, error.sqlstate(), sentence(error.what()));
  } catch (const std::exception& error) {
    // Whatever else there is (a failure to talk to the server among it) proves nothing.
    raise_lost(stage, doing, sentence(error.what()));
  }
}

}  // namespace fenceguard::postgres
