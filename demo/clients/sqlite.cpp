#include "adapters/sqlite/file/file.hpp"
#include "adapters/sqlite/objects/object_table.hpp"
#include "demo/clients/clients.hpp"
#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

class SqliteClient : public RawClient {
 public:
  explicit SqliteClient(const std::string& path)
      : database_{path, Database::Mode::read_write}, objects_{database_.handle()} {}

  std::optional<std::string> read(const std::string& path) override {
    auto object = objects_.load(path, "");
    if (!object) return std::nullopt;
    return std::move(object->body);
  }

  void write(const std::string& path, const std::string& body) override {
    database_.begin();
    const auto version = objects_.version(path).value_or(0) + 1;
    objects_.store({ObjectWrite::Kind::put, path, body, "text/plain", {}, {}}, version);
    commit();
  }

  void remove(const std::string& path) override {
    database_.begin();
    objects_.remove(path);
    commit();
  }

 private:
  void commit() {
    if (database_.commit() != CommitEnding::committed) throw OutcomeUnknown("the commit's end was not seen");
  }

  Database database_;
  ObjectTable objects_;
};

}  // namespace

std::unique_ptr<RawClient> open_raw_client(const Url& url) {
  const auto path = path_of(url);
  prepare_file(path, Missing::refuse);
  return std::make_unique<SqliteClient>(path);
}

}  // namespace fenceguard::sqlite
