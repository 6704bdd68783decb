# frozen_string_literal: true

require_relative "../support/bare_socket"

module Thruway
  # The sockets that systemd has opened for this process; see sd_listen_fds(3).
  class SocketActivation
    FIRST_DESCRIPTOR = 3
    VARIABLES = %w[LISTEN_PID LISTEN_FDS LISTEN_FDNAMES].freeze

    # A listening socket: its descriptor, its name in the unit, and its address.
    ActivatedSocket = Struct.new(:descriptor, :name, :address)

    # Takes the sockets, and removes the variables, which are meant for this process alone.
    def self.take
      pid, count, names = VARIABLES.map { |name| ENV.delete(name) }
      return new([]) unless pid.to_i == Process.pid

      names = names.to_s.split(":")
      new(Array.new(count.to_i) { |index| open(FIRST_DESCRIPTOR + index, names[index]) }.compact)
    end

    def self.open(number, name)
      socket = Socket.for_fd(number)
      socket.autoclose = false
      socket.close_on_exec = true
      ActivatedSocket.new(number, name, show(socket.local_address))
    rescue SystemCallError
      nil
    end

    def self.show(address)
      return "tcp://#{address.inspect_sockaddr}" if address.ip?

      path = address.unix_path
      "unix://#{path.start_with?("\0") ? "@#{path[1..]}" : path}"
    end
    private_class_method :open, :show

    def initialize(sockets)
      @sockets = sockets
    end

    def any? = @sockets.any?

    # A URI for each socket: `systemd://` and the name or the descriptor.
    def uris = @sockets.map { |socket| "systemd://#{socket.name || socket.descriptor}" }.uniq

    # The sockets for `uri`, which contains a name or the address of the sockets.
    def at(uri)
      # A path may contain bytes in any encoding.
      uri = uri.b
      name = uri[%r{\Asystemd://(.+)\z}n, 1]
      @sockets.select do |socket|
        name ? [socket.name, socket.descriptor.to_s].include?(name) : same?(uri, socket.address)
      end
    end

    private

    def same?(uri, address)
      uri = uri.split("?").first
      uri = uri.sub("localhost", "127.0.0.1") if address.include?("127.0.0.1")
      uri == address.b
    end
  end
end
