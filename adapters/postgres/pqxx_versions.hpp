#pragma once

// What libpqxx 6.4 (Debian 12) and 7.10 (Debian 13) spell differently, in one spelling, so that neither meets
// a call that it does not know or calls deprecated. Everything else of libpqxx is used as it is.
//
// exec_params()   runs sql with its parameters $1, $2, …
// exec_values()   the same with as many as there are; nullopt is NULL
// exec_row()      exec_params() of what answers one row; throws pqxx::unexpected_rows where it does not
// NoticeHandler   passes what the server notes (NOTICE, WARNING) to a function, instead of stderr
// Quiet           drops it
// Warnings        keeps the first thing that the server warned of while it lives, and passes all of it on
// Listener        listens on a channel; the connection's get_notifs() passes each payload to the function
//
// REQUIRES of NoticeHandler, Quiet and Listener: they, and what the function refers to, live as long as the
// connection, because libpqxx 7.10 keeps the function.

#include <functional>
#include <optional>
#include <pqxx/pqxx>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fenceguard::postgres {

// What transaction_base::conn() answers.
using AnyConnection = std::remove_reference_t<decltype(std::declval<pqxx::transaction_base&>().conn())>;
using Values = std::vector<std::optional<std::string>>;
using HandleNotice = std::function<void(std::string_view text)>;
using HandlePayload = std::function<void(const std::string& payload)>;

#if PQXX_VERSION_MAJOR > 7 || (PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR >= 10)

template <typename... Parameters>
pqxx::result exec_params(pqxx::transaction_base& tx, const std::string& sql, Parameters&&... parameters) {
  return tx.exec(sql, pqxx::params{std::forward<Parameters>(parameters)...});
}

inline pqxx::result exec_values(pqxx::transaction_base& tx, const std::string& sql, const Values& values) {
  pqxx::params parameters;
  parameters.append_multi(values);
  return tx.exec(sql, parameters);
}

class NoticeHandler {
 public:
  NoticeHandler(pqxx::connection& connection, HandleNotice handle) {
    connection.set_notice_handler([handle = std::move(handle)](pqxx::zview text) { handle(text); });
  }
};

class Listener {
 public:
  Listener(pqxx::connection& connection, const std::string& channel, HandlePayload handle) {
    connection.listen(channel, [handle = std::move(handle)](const pqxx::notification& heard) {
      handle(std::string{heard.payload});
    });
  }
};

#else

template <typename... Parameters>
pqxx::result exec_params(pqxx::transaction_base& tx, const std::string& sql, Parameters&&... parameters) {
  return tx.exec_params(sql, std::forward<Parameters>(parameters)...);
}

inline pqxx::result exec_values(pqxx::transaction_base& tx, const std::string& sql, const Values& values) {
  std::vector<const char*> texts;
  for (const auto& value : values) texts.push_back(value ? value->c_str() : nullptr);
  return tx.exec_params(sql, pqxx::prepare::make_dynamic_params(texts));
}

class NoticeHandler : pqxx::errorhandler {
 public:
  NoticeHandler(pqxx::connection& connection, HandleNotice handle)
      : errorhandler{connection}, handle_{std::move(handle)} {}

 private:
  bool operator()(const char text[]) noexcept override {
    handle_(text);
    return false;
  }

  HandleNotice handle_;
};

class Listener : pqxx::notification_receiver {
 public:
  Listener(pqxx::connection& connection, const std::string& channel, HandlePayload handle)
      : notification_receiver{connection, channel}, handle_{std::move(handle)} {}

 private:
  void operator()(const std::string& payload, int) override { handle_(payload); }

  HandlePayload handle_;
};

#endif

template <typename... Parameters>
pqxx::row exec_row(pqxx::transaction_base& tx, const std::string& sql, Parameters&&... parameters) {
  const auto rows = exec_params(tx, sql, std::forward<Parameters>(parameters)...);
  if (rows.size() != 1) throw pqxx::unexpected_rows{"not one row but " + std::to_string(rows.size())};
  return rows[0];
}

// By the older way also where there is a newer one, which knows no handler beside that of the connection's
// owner.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
class Warnings : pqxx::errorhandler {
 public:
  explicit Warnings(AnyConnection& connection) : errorhandler{connection} {}
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  // Empty: none.
  [[nodiscard]] const std::string& first() const noexcept { return first_; }

 private:
  bool operator()(const char text[]) noexcept override {
    // An INFO is sent whatever is asked for.
    if (first_.empty() && !std::string_view{text}.starts_with("INFO")) first_ = text;
    return true;
  }

  std::string first_;
};
#pragma GCC diagnostic pop

class Quiet : NoticeHandler {
 public:
  explicit Quiet(pqxx::connection& connection) : NoticeHandler{connection, [](std::string_view) {}} {}
};

}  // namespace fenceguard::postgres
