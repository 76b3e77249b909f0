#pragma once

// TlsContext: certificates and rules of one side of TLS, from files in PEM. TLS 1.2 and 1.3 only.
//
// Thread-safe.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

struct ssl_ctx_st;
struct ssl_st;

namespace fenceguard::net {

struct TlsServerFiles {
  std::string certificate_file;  // with its chain
  std::string key_file;
  std::string client_ca_file;  // clients must show a certificate of these; empty: none is asked for
};

struct TlsClientFiles {
  std::string ca_file;           // empty: the system's
  std::string certificate_file;  // ours; empty: none
  std::string key_file;
};

class TlsContext {
 public:
  // Throw InvalidInput with a sentence that names the file. protocol: a literal, the one that a client may
  // ask for (ALPN) if it names any; null: what it names is ignored.
  [[nodiscard]] static std::shared_ptr<TlsContext> server(const TlsServerFiles& files,
                                                          const char* protocol = nullptr);
  // host: the name that the server's certificate must be for.
  [[nodiscard]] static std::shared_ptr<TlsContext> client(const TlsClientFiles& files, std::string host);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // Reads the files again, for connections that are made from now on; on InvalidInput the old ones stay.
  void reload();

  // A connection under the present certificates, which the caller frees. Null: there is no memory for it.
  [[nodiscard]] ssl_st* make_connection() const;
  [[nodiscard]] bool is_server() const noexcept { return host_.empty(); }
  [[nodiscard]] const std::string& host() const noexcept { return host_; }
  // Sets the name of the server that a client's connection asks for, and whose certificate alone it takes.
  // Throws std::bad_alloc.
  void name_server(ssl_st& connection) const;

 private:
  using Read = std::function<ssl_ctx_st*()>;
  TlsContext(Read read, std::string host)
      : read_{std::move(read)}, context_{read_()}, host_{std::move(host)} {}

  const Read read_;
  mutable std::mutex mutex_;  // guards context_, of which each connection holds a share
  ssl_ctx_st* context_;
  const std::string host_;  // empty: of a server
};

}  // namespace fenceguard::net
