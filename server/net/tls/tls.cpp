#include "server/net/tls/tls.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "guard/error.hpp"

namespace fenceguard::net {
namespace {

struct Freer {
  void operator()(SSL_CTX* context) const noexcept { ::SSL_CTX_free(context); }
};
using Context = std::unique_ptr<SSL_CTX, Freer>;

// Why OpenSSL's last call failed, in its own words.
[[noreturn]] void refuse(std::string_view what, const std::string& file) {
  const auto code = ::ERR_peek_error();
  const auto* const reason = ERR_SYSTEM_ERROR(code) ? nullptr : ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  throw InvalidInput(fmt::format("the {} '{}' cannot be used: {}", what, file,
                                 reason ? reason : "it does not exist or cannot be read"));
}

Context make_context(const SSL_METHOD* method) {
  ::ERR_clear_error();
  Context context{::SSL_CTX_new(method)};
  if (!context) throw std::bad_alloc{};
  ::SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  ::SSL_CTX_set_options(context.get(),
                        SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  ::SSL_CTX_set_max_early_data(context.get(), 0);
  // A key under a passphrase: OpenSSL must not prompt for it.
  ::SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });
  // Memory of idle connections is given back; a write goes on from wherever the rest of the bytes is now.
  ::SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

void use_own_certificate(SSL_CTX& context, const std::string& certificate_file, const std::string& key_file) {
  if (::SSL_CTX_use_certificate_chain_file(&context, certificate_file.c_str()) != 1)
    refuse("certificate", certificate_file);
  if (::SSL_CTX_use_PrivateKey_file(&context, key_file.c_str(), SSL_FILETYPE_PEM) != 1)
    refuse("key", key_file);
  if (::SSL_CTX_check_private_key(&context) != 1) refuse("key", key_file);
}

void trust(SSL_CTX& context, const std::string& ca_file) {
  if (::SSL_CTX_load_verify_file(&context, ca_file.c_str()) != 1) refuse("file of certificates", ca_file);
}

bool is_number(const std::string& host) noexcept {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 || ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// protocol: the name of the only one that is spoken here, if the client names any.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                    unsigned int in_bytes, void* protocol) {
  const std::string_view known{static_cast<const char*>(protocol)};
  for (unsigned int at = 0; at < in_bytes; at += 1U + in[at]) {
    const std::string_view named{reinterpret_cast<const char*>(in + at + 1), in[at]};
    if (named != known) continue;
    *out = in + at + 1;
    *out_bytes = in[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

SSL_CTX* read_server(const TlsServerFiles& files, const char* protocol) {
  auto context = make_context(::TLS_server_method());
  use_own_certificate(*context, files.certificate_file, files.key_file);
  // Sessions that are taken up again belong to this context and its clients' certificates.
  static constexpr unsigned char session_context[] = "fenceguard";
  ::SSL_CTX_set_session_id_context(context.get(), session_context, sizeof session_context - 1);
  ::SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (protocol != nullptr)
    ::SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, const_cast<char*>(protocol));
  if (!files.client_ca_file.empty()) {
    trust(*context, files.client_ca_file);
    auto* const names = ::SSL_load_client_CA_file(files.client_ca_file.c_str());
    if (!names) refuse("file of certificates", files.client_ca_file);
    ::SSL_CTX_set_client_CA_list(context.get(), names);
    ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return context.release();
}

SSL_CTX* read_client(const TlsClientFiles& files) {
  auto context = make_context(::TLS_client_method());
  if (files.ca_file.empty()) {
    ::SSL_CTX_set_default_verify_paths(context.get());
  } else {
    trust(*context, files.ca_file);
  }
  if (!files.certificate_file.empty()) use_own_certificate(*context, files.certificate_file, files.key_file);
  ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context.release();
}

}  // namespace

std::shared_ptr<TlsContext> TlsContext::server(const TlsServerFiles& files, const char* protocol) {
  return std::shared_ptr<TlsContext>{
      new TlsContext{[files, protocol] { return read_server(files, protocol); }, {}}};
}

std::shared_ptr<TlsContext> TlsContext::client(const TlsClientFiles& files, std::string host) {
  if (host.empty()) throw InvalidInput("a server's certificate is checked against a name, and there is none");
  return std::shared_ptr<TlsContext>{new TlsContext{[files] { return read_client(files); }, std::move(host)}};
}

TlsContext::~TlsContext() {
  ::SSL_CTX_free(context_);
}

void TlsContext::reload() {
  Context fresh{read_()};
  const std::lock_guard lock{mutex_};
  fresh.reset(std::exchange(context_, fresh.release()));
}

ssl_st* TlsContext::make_connection() const {
  const std::lock_guard lock{mutex_};
  return ::SSL_new(context_);
}

void TlsContext::name_server(ssl_st& connection) const {
  if (is_number(host_)) {
    // SNI carries names only.
    if (::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(&connection), host_.c_str()) != 1)
      throw std::bad_alloc{};
    return;
  }
  ::SSL_set_hostflags(&connection, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (::SSL_set_tlsext_host_name(&connection, host_.c_str()) != 1 ||
      ::SSL_set1_host(&connection, host_.c_str()) != 1)
    throw std::bad_alloc{};
}

}  // namespace fenceguard::net
