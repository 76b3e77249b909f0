#include "server/postgres/postgres_service.hpp"

#include "server/net/loop.hpp"
#include "server/postgres/session.hpp"

namespace fenceguard::pgwire {
PostgresService::PostgresService(const ServiceContext& context, PostgresOptions options)
    : shared_{std::make_shared<Shared>(context, std::move(options))}, server_{context.threads} {}

PostgresService::~PostgresService() {
  server_.drain(std::chrono::milliseconds{0});
}

std::string PostgresService::listen(const std::string& address) {
  return server_.listen(net::Address::parse(address),
                        std::make_shared<net::SharedService<Session, Shared>>(shared_, server_.counter()));
}

}  // namespace fenceguard::pgwire
