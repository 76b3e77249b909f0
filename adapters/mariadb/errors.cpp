#include "adapters/mariadb/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "guard/error.hpp"

namespace fenceguard::mariadb {
namespace {

// Errors that the server gives before it commits, and after which our procedures have rolled back.
constexpr std::array<unsigned, 19> before_any_commit{
    1020,  // ER_CHECKREAD: innodb_snapshot_isolation
    1040,  // ER_CON_COUNT_ERROR
    1044,  // ER_DBACCESS_DENIED_ERROR
    1045,  // ER_ACCESS_DENIED_ERROR
    1049,  // ER_BAD_DB_ERROR
    1062,  // ER_DUP_ENTRY
    table_access_denied,
    1146,  // ER_NO_SUCH_TABLE
    1205,  // ER_LOCK_WAIT_TIMEOUT
    1213,  // ER_LOCK_DEADLOCK
    1226,  // ER_USER_LIMIT_REACHED
    1290,  // ER_OPTION_PREVENTS_STATEMENT: read_only
    1305,  // ER_SP_DOES_NOT_EXIST
    1318,  // ER_SP_WRONG_NO_OF_ARGS: the SQL was installed in part
    1370,  // ER_PROCACCESS_DENIED_ERROR
    1568,  // ER_CANT_CHANGE_TX_CHARACTERISTICS: in a transaction
    1644,  // ER_SIGNAL_EXCEPTION
    1665,  // ER_BINLOG_STMT_MODE_AND_ROW_ENGINE
    1792,  // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
};

[[noreturn]] void raise_lost(Stage stage, std::string_view doing, std::string_view reason) {
  if (stage == Stage::before_commit)
    throw Unavailable(fmt::format("{}: {}; nothing was committed", doing, reason));
  throw OutcomeUnknown(fmt::format("{}: {}; it may or may not have taken effect", doing, reason));
}

[[noreturn]] void raise_answered(Stage stage, std::string_view doing, const ServerError& error) {
  const std::string_view reason = error.what();
  if (error.state() == "ZF004") throw Implausible(fmt::format("{}: {}", doing, reason));
  if (error.state() == "22023") throw InvalidInput(fmt::format("{}: {}", doing, reason));
  if (is_not_installed(error)) {
    throw Unavailable(
        fmt::format("{}: {}; install the fences with 'fenceguard sql mariadb | mariadb', once per server",
                    doing, reason));
  }
  if (error.number() == 1568) {
    throw InvalidInput(fmt::format("{}: a transaction is open, and this is one of its own", doing));
  }
  if (error.number() == lock_wait_timeout) {
    throw Unavailable(fmt::format("{}: older transactions are still open; nothing was done", doing));
  }
  if (error.number() == 1095) {  // ER_KILL_DENIED_ERROR
    throw Unavailable(
        fmt::format("{}: {}, which is another user's, so that this one needs the privilege CONNECTION ADMIN",
                    doing, reason));
  }
  if (!std::ranges::binary_search(before_any_commit, error.number())) raise_lost(stage, doing, reason);
  throw Unavailable(fmt::format("{}: {}; nothing was committed", doing, reason));
}

}  // namespace

bool is_not_installed(const ServerError& error) noexcept {
  return error.number() == 1049 || error.number() == 1146 || error.number() == 1305;
}

void raise_current(Stage stage, std::string_view doing) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const ConnectionLost& error) {
    raise_lost(stage, doing, error.what());
  } catch (const ServerError& error) {
    raise_answered(stage, doing, error);
  } catch (const std::exception& error) {
    // Whatever else there is proves nothing.
    raise_lost(stage, doing, error.what());
  }
}

}  // namespace fenceguard::mariadb
