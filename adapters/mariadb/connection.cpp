#include "adapters/mariadb/connection.hpp"

#include <fmt/format.h>
#include <mysql.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "adapters/mariadb/errors.hpp"
#include "guard/error.hpp"
#include "guard/support/text.hpp"

namespace fenceguard::mariadb {
namespace {

constexpr unsigned client_errors_min = 2'000;  // errmsg.h: no answer of the server
constexpr unsigned client_errors_max = 2'999;
constexpr unsigned read_only_transaction = 1792;
constexpr unsigned server_shutdown = 1053;
constexpr unsigned connection_killed = 1927;

unsigned seconds(std::chrono::milliseconds time) {
  return static_cast<unsigned>(std::chrono::ceil<std::chrono::seconds>(time).count());
}

// Takes the first word off.
std::string_view take_word(std::string_view& sql) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto begin = std::ranges::find_if_not(sql, [](char c) { return c == ' ' || c == '\n' || c == '\t'; });
  const auto end = std::find_if_not(begin, sql.end(), is_letter);
  sql = {end, sql.end()};
  return {begin, end};
}

// BEGIN may also be that of a compound statement.
bool ends_transaction(std::string_view sql) {
  const auto first = take_word(sql);
  const auto second = take_word(sql);
  const auto is = [](std::string_view word, std::string_view name) {
    return equals_ignoring_case(word, name);
  };
  return is(first, "COMMIT") || is(first, "ROLLBACK") || (is(first, "START") && is(second, "TRANSACTION")) ||
         (is(first, "BEGIN") && (second.empty() || is(second, "WORK")));
}

bool only_reads(std::string_view sql) {
  const auto first = take_word(sql);
  return equals_ignoring_case(first, "SELECT") || equals_ignoring_case(first, "SHOW");
}

// Whether it neither commits nor rolls back by itself: what is called by these (functions, triggers) cannot,
// either.
bool keeps_transaction(std::string_view sql) {
  constexpr std::array<std::string_view, 9> kept{"SELECT",  "SHOW", "INSERT",    "UPDATE", "DELETE",
                                                 "REPLACE", "DO",   "SAVEPOINT", "RELEASE"};
  const auto first = take_word(sql);
  const auto second = take_word(sql);
  return std::ranges::any_of(kept, [&](auto word) { return equals_ignoring_case(first, word); }) ||
         (equals_ignoring_case(first, "ROLLBACK") && equals_ignoring_case(second, "TO"));
}

st_mysql* make_handle() {
  // The first call of the library is not thread-safe.
  static std::once_flag once;
  std::call_once(once, [] { mysql_library_init(0, nullptr, nullptr); });
  auto* handle = mysql_init(nullptr);
  if (handle == nullptr) throw Unavailable("there is no memory for a connection");
  return handle;
}

const char* or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

void set_options(MYSQL* handle, const Address& address) {
  const unsigned connect = seconds(address.connect_timeout);
  const unsigned answer = seconds(address.timeout);
  const unsigned off = 0;
  mysql_optionsv(handle, MYSQL_OPT_CONNECT_TIMEOUT, &connect);
  mysql_optionsv(handle, MYSQL_OPT_READ_TIMEOUT, &answer);
  mysql_optionsv(handle, MYSQL_OPT_WRITE_TIMEOUT, &answer);
  // A server must not be able to ask for this machine's files.
  mysql_optionsv(handle, MYSQL_OPT_LOCAL_INFILE, &off);
  mysql_optionsv(handle, MYSQL_SET_CHARSET_NAME, "utf8mb4");
  if (!address.tls.is_on) return;
  const my_bool on = 1;
  mysql_ssl_set(handle, or_null(address.tls.key), or_null(address.tls.cert), or_null(address.tls.cacert),
                nullptr, nullptr);
  mysql_optionsv(handle, MYSQL_OPT_SSL_ENFORCE, &on);
  mysql_optionsv(handle, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &on);
}

Rows rows_of(MYSQL_RES* result) {
  Rows rows;
  const auto width = mysql_num_fields(result);
  while (const MYSQL_ROW fields = mysql_fetch_row(result)) {
    const auto* lengths = mysql_fetch_lengths(result);
    Row row(width);
    for (unsigned i = 0; i < width; ++i)
      if (fields[i] != nullptr) row[i].emplace(fields[i], lengths[i]);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Connection::Connection(const Address& address)
    : schema_{address.schema}, address_{address}, handle_{make_handle(), mysql_close} {
  auto* handle = handle_.get();
  set_options(handle, address);
  const auto* host = address.host.empty() ? "localhost" : address.host.c_str();
  if (mysql_real_connect(handle, host, address.user.c_str(), address.password.c_str(),
                         or_null(address.database), address.port, or_null(address.socket),
                         CLIENT_MULTI_RESULTS) == nullptr) {
    throw Unavailable(fmt::format("{} cannot be reached: {}", address.shown, mysql_error(handle)));
  }
  try {
    run("SET autocommit = 1");
  } catch (const std::exception& error) {
    throw Unavailable(fmt::format("{} cannot be reached: {}", address.shown, error.what()));
  }
}

Connection::Connection(st_mysql* borrowed, std::string schema, std::optional<Address> same)
    : schema_{std::move(schema)},
      address_{std::move(same)},
      handle_{borrowed, [](st_mysql*) {}},
      is_shared_{true} {
  // In another one a name would be that of another fence.
  const std::string_view charset = mysql_character_set_name(borrowed);
  if (charset != "utf8mb4") {
    throw InvalidInput(fmt::format(
        "the connection's character set is utf8mb4, and this one's is {}: mysql_set_character_set()",
        charset));
  }
  if (address_) address_->schema = schema_;
}

std::uint64_t Connection::id() const noexcept {
  return mysql_thread_id(handle_.get());
}

void Connection::raise_failure() {
  const auto number = mysql_errno(handle_.get());
  const std::string message = mysql_error(handle_.get());
  const bool is_ended = number == connection_killed || number == server_shutdown;
  if (is_ended || (number >= client_errors_min && number <= client_errors_max)) {
    is_open_ = false;
    throw ConnectionLost(message);
  }
  throw ServerError(number, mysql_sqlstate(handle_.get()), message);
}

Rows Connection::run(std::string_view sql) {
  const bool ends = ends_transaction(sql);
  if (is_doomed_ && !ends && !only_reads(sql)) {
    throw ServerError(read_only_transaction, "25006",
                      "a claim was refused in this transaction: nothing was sent; end it by ROLLBACK first");
  }
  auto rows = send(sql);
  if (ends) is_doomed_ = false;
  return rows;
}

void Connection::doom() {
  roll_back();
  run("START TRANSACTION READ ONLY");
  is_doomed_ = true;
}

Rows Connection::send(std::string_view sql) {
  if (!is_open_) throw ConnectionLost("the connection was lost before");
  const bool was_whole = is_whole_;
  const bool keeps = keeps_transaction(sql);
  is_whole_ = was_whole && keeps && is_answered_ && is_in_transaction();
  is_answered_ = false;
  auto rows = send_and_read(sql);
  is_answered_ = true;
  // What followed an error was not alone, then.
  is_whole_ = was_whole && keeps && is_in_transaction();
  return rows;
}

Rows Connection::send_and_read(std::string_view sql) {
  auto* handle = handle_.get();
  if (mysql_real_query(handle, sql.data(), static_cast<unsigned long>(sql.size())) != 0) raise_failure();
  std::optional<Rows> rows;
  affected_rows_ = mysql_affected_rows(handle);  // which the next result forgets
  for (;;) {
    if (auto* result = mysql_store_result(handle)) {
      const std::unique_ptr<MYSQL_RES, void (*)(MYSQL_RES*)> owned{result, mysql_free_result};
      if (!rows) rows = rows_of(result);
    } else if (mysql_field_count(handle) != 0) {
      raise_failure();
    }
    const int next = mysql_next_result(handle);
    if (next < 0) return rows ? std::move(*rows) : Rows{};
    if (next > 0) raise_failure();
  }
}

std::string Connection::quote(std::string_view text) const {
  std::string quoted(2 * text.size() + 3, '\0');
  quoted.front() = '\'';
  const auto length = mysql_real_escape_string(handle_.get(), quoted.data() + 1, text.data(),
                                               static_cast<unsigned long>(text.size()));
  quoted.resize(length + 1);
  return quoted + "'";
}

Rows Connection::run(std::string_view sql, const Row& arguments) {
  std::string text;
  std::size_t next = 0;
  for (const char c : sql) {
    if (c != '?' || next == arguments.size()) {
      text += c;
    } else {
      const auto& argument = arguments[next++];
      text += argument ? quote(*argument) : "NULL";
    }
  }
  if (next != arguments.size()) throw InvalidInput("a statement has a '?' for each of its arguments");
  return run(text);
}

Rows Connection::call(std::string_view procedure, const Row& arguments) {
  std::string text = fmt::format("CALL {}.{}(", quoted_name(schema_), procedure);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (i > 0) text += ", ";
    // A session without strict mode would make '?' of it, and one fence of several names.
    if (arguments[i] && !is_utf8(*arguments[i]))
      throw InvalidInput(fmt::format("{}: what is sent is UTF-8, and this is not", procedure));
    text += arguments[i] ? quote(*arguments[i]) : "NULL";
  }
  return send(text + ")");  // ours write nothing under a claim that was refused
}

void Connection::end_session(const std::string& number) {
  constexpr unsigned no_such_thread = 1094;
  try {
    run("KILL CONNECTION " + number);
  } catch (const ServerError& error) {
    if (error.number() != no_such_thread) throw;
  }
}

bool Connection::is_in_transaction() {
  if (is_open_ && mysql_errno(handle_.get()) != 0) (void)send_and_read("DO 0");
  return (server_status() & SERVER_STATUS_IN_TRANS) != 0;
}

bool Connection::is_in_transaction(std::string_view doing) {
  return mapped(Stage::before_commit, doing, [&] { return is_in_transaction(); });
}

bool Connection::commits_by_itself() const {
  return (server_status() & SERVER_STATUS_AUTOCOMMIT) != 0;
}

unsigned Connection::server_status() const {
  unsigned status = 0;
  mariadb_get_infov(handle_.get(), MARIADB_CONNECTION_SERVER_STATUS, &status);
  return status;
}

}  // namespace fenceguard::mariadb
