#pragma once

// server/net moves bytes and knows no protocol: a server has loops, one thread each, and listeners, which
// accept for a service and spread its sessions over the loops; a connection is a transport (clear or TLS), a
// read buffer and one deadline, kept by the loop's alarm. Connections without a coroutine are the loop's
// poller's. tls/ has certificates, read/ what was read and what is left, address.hpp names, peer/ which
// process a client is, client/ how a connection to a server begins, wakeup.hpp a wait between coroutines.
//
// Here are its Asio types: one thread per io_context, so executors need no type erasure; TCP and Unix sockets
// share one generic protocol, so that a session is compiled once.

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>

namespace fenceguard::net {

namespace asio = boost::asio;

using Executor = asio::io_context::executor_type;
using Protocol = asio::generic::stream_protocol;
using Socket = asio::basic_stream_socket<Protocol, Executor>;
using Acceptor = asio::basic_socket_acceptor<Protocol, Executor>;
using SteadyTime = std::chrono::steady_clock::time_point;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Executor>;

// A coroutine of the server.
template <class T>
using Task = asio::awaitable<T, Executor>;

// Completion token: errors come back as values. Deferred, because awaiting that takes no coroutine of its
// own.
inline constexpr asio::as_tuple_t<asio::deferred_t> as_result{};

}  // namespace fenceguard::net
