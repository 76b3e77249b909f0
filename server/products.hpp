#pragma once

// The table of products: what each offers to the binary under its URL schemes: storages, doctors, SQL.
// Everything of the server that has a URL asks it. To add a storage is to add its line
// in products.cpp.
//
// Thread-safe.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "guard/source/url.hpp"
#include "guard/store/storage.hpp"
#include "guard/token_source.hpp"
#include "server/doctor/doctor.hpp"
#include "server/fencing/fence_method.hpp"

namespace fenceguard {

// Functions that are empty are not offered. All throw InvalidInput for a bad URL and Unavailable for what
// cannot be reached or is not fit to be used, with a sentence that says what to do.
struct Product {
  std::vector<std::string> schemes{};
  std::function<std::unique_ptr<TokenSource>(const Url&)> open_source{};
  // Where opening makes what is not there, for callers that must not: throws Unavailable unless it is there.
  std::function<void(const Url&)> require_present{};
  std::function<std::unique_ptr<Storage>(const Url&, const StorageOptions&)> open_storage{};
  bool needs_state = false;  // LaneOptions::state must be given to open_storage
  std::function<Findings(const Url&)> examine_source{};
  std::function<Findings(const Url&)> examine_storage{};
  std::function<std::string()> install_sql{};    // what a database of the user's own is given
  std::function<std::string()> uninstall_sql{};  // what takes it away
  // A fence method of the storage's own; null for a word that is none.
  std::function<std::unique_ptr<FenceMethod>(const Url&, std::string_view word, std::string_view parameter)>
      open_fence_method{};
  // NAME=VALUE for the environment of a holder's command, by which such a method tells its connections.
  std::function<std::string(const Claim&)> name_sessions{};
  // Whether a pooler stands before the server, which passes on nothing of what a client says as it connects.
  std::function<bool(const Url&)> is_pooled{};
  // A holder gives its claim back, and writes no more: closes its fence if it is still this holder's.
  std::function<void(const Url&, const Claim&)> finish_holder{};
};

class ProductTable {
 public:
  explicit ProductTable(std::vector<Product> products) : products_{std::move(products)} {}

  // The product of url's scheme. Throws InvalidInput that lists the known ones.
  [[nodiscard]] const Product& find(const Url& url) const;

  // As the functions of Product; InvalidInput where it is not offered.
  [[nodiscard]] std::unique_ptr<TokenSource> open_source(const Url& url) const;
  void require_present(const Url& url) const;
  [[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) const;
  [[nodiscard]] Findings examine_source(const Url& url) const;
  [[nodiscard]] Findings examine_storage(const Url& url) const;
  // The SQL to install for the product of this scheme ('sqlite').
  [[nodiscard]] std::string install_sql(std::string_view scheme) const;
  [[nodiscard]] std::string uninstall_sql(std::string_view scheme) const;

 private:
  std::vector<Product> products_;
};

// All products of this build.
[[nodiscard]] const ProductTable& products();

}  // namespace fenceguard
