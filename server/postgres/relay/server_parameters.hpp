#pragma once

// ServerParameters: the settings that the server reports and a guarded session depends on. Not thread-safe.

#include <map>
#include <string>
#include <string_view>

namespace fenceguard::pgwire {

class ServerParameters {
 public:
  // The body of a ParameterStatus.
  void take(std::string_view body);
  [[nodiscard]] bool is_standby() const { return is("in_hot_standby", "on"); }
  [[nodiscard]] bool is_utf8() const { return is("client_encoding", "UTF8"); }
  // The error with which a session that they do not allow to be guarded ends; empty: they do.
  [[nodiscard]] std::string objection() const;
  // The same as one begins.
  [[nodiscard]] std::string objection_to_begin() const;

 private:
  // Empty: it was not reported.
  [[nodiscard]] std::string_view value(std::string_view name) const;
  [[nodiscard]] bool is(std::string_view name, std::string_view expected) const {
    return value(name) == expected;
  }

  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace fenceguard::pgwire
