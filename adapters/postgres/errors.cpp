#include "adapters/postgres/errors.hpp"

#include <fmt/format.h>

#include <pqxx/pqxx>
#include <string>

#include "guard/error.hpp"

namespace fenceguard::postgres {
namespace {

std::string trimmed(const char* text) {
  std::string result = text;
  while (!result.empty() && (result.back() == '\n' || result.back() == ' ')) result.pop_back();
  return result;
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
  const auto is_class = [&state](std::string_view code) { return state.starts_with(code); };
  if (state == "ZF004") throw Implausible(fmt::format("{}: {}", doing, reason));
  // The server is going down, or failed to write: whether a COMMIT took effect before that is not said.
  if (state.empty() || is_class("57P") || is_class("58") || is_class("08") || is_class("XX")) {
    raise_lost(stage, doing, reason);
  }
  // Values that are no claim, no number, no text.
  if (is_class("22")) throw InvalidInput(fmt::format("{}: {}", doing, reason));
  if (state == "3F000" || state == "42883" || state == "42P01") {
    throw Unavailable(
        fmt::format("{}: {}; install the fences with 'fenceguard sql postgres | psql', once per database",
                    doing, reason));
  }
  throw Unavailable(fmt::format("{}: {}; rolled back", doing, reason));
}

}  // namespace

void raise_current(Stage stage, std::string_view doing) {
  // Most specific first: in libpqxx 6.4 statement_completion_unknown derives from transaction_rollback.
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const pqxx::statement_completion_unknown& error) {
    raise_lost(stage, doing, trimmed(error.what()));
  } catch (const pqxx::in_doubt_error& error) {
    raise_lost(Stage::at_commit, doing, trimmed(error.what()));
  } catch (const pqxx::broken_connection& error) {
    raise_lost(stage, doing, trimmed(error.what()));
  } catch (const pqxx::transaction_rollback& error) {
    throw Unavailable(fmt::format("{}: {}; rolled back, try again", doing, trimmed(error.what())));
  } catch (const pqxx::sql_error& error) {
    raise_answered(stage, doing, error.sqlstate(), trimmed(error.what()));
  } catch (const std::exception& error) {
    // Whatever else there is (a failure to talk to the server among it) proves nothing.
    raise_lost(stage, doing, trimmed(error.what()));
  }
}

}  // namespace fenceguard::postgres
