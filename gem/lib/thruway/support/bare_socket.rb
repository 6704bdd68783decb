# frozen_string_literal: true

# The part of `socket` that is written in C. The other part requires `io/wait`, which may be a gem
# in the application's bundle, and may not be loaded before the bundle is set up.
require "socket.so"

module Thruway
  # What `socket` adds to its sockets, for processes that have not loaded an application. From Ruby
  # 3.1 to 4.0, these methods of Ruby's are all that `socket` calls for them.
  module BareSocket
    module_function

    # Another connection of a listener; nil if none waits.
    def accept(listener)
      socket, = listener.__send__(:__accept_nonblock, false)
      socket if socket.is_a?(Socket)
    end

    # Sends a message to `address` unless that blocks.
    def send_datagram(socket, text, address)
      socket.__send__(:__sendmsg_nonblock, text, 0, address, [], false)
    end

    # Sends a message with ancillary data.
    def send_message(socket, text, data)
      socket.__send__(:__sendmsg, text, 0, nil, [data])
    end

    # Whether `io` can be read within so many seconds.
    def readable?(io, seconds) = !!IO.select([io], nil, nil, [seconds, 0].max)

    # Whether `io` can be written within so many seconds.
    def writable?(io, seconds) = !!IO.select(nil, [io], nil, [seconds, 0].max)
  end
end
