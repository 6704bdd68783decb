# frozen_string_literal: true

# The part of `socket` that is written in C. The Ruby part requires `io/wait`, which may be a gem of
# the application's bundle and must not be loaded before the bundle is set up.
require "socket.so"

module Thruway
  # The methods that the Ruby part of `socket` adds to sockets, for processes that have not loaded
  # an application. From Ruby 3.1 to 4.0, the Ruby part calls the same private methods.
  module BareSocket
    module_function

    # Accepts a connection. Returns nil if none is queued.
    def accept(listener)
      socket, = listener.__send__(:__accept_nonblock, false)
      socket if socket.is_a?(Socket)
    end

    # Sends a datagram to `address`, unless the call would block.
    def send_datagram(socket, text, address)
      socket.__send__(:__sendmsg_nonblock, text, 0, address, [], false)
    end

    # Sends a message with ancillary data.
    def send_message(socket, text, data)
      socket.__send__(:__sendmsg, text, 0, nil, [data])
    end

    # Whether `io` becomes readable within `seconds`.
    def readable?(io, seconds) = !!IO.select([io], nil, nil, [seconds, 0].max)

    # Whether `io` becomes writable within `seconds`.
    def writable?(io, seconds) = !!IO.select(nil, [io], nil, [seconds, 0].max)
  end
end
