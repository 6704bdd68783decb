# frozen_string_literal: true

require_relative "../support/bare_socket"

module Thruway
  # Sockets that systemd has opened for this process; see sd_listen_fds(3).
  class Activation
    FIRST = 3
    VARIABLES = %w[LISTEN_PID LISTEN_FDS LISTEN_FDNAMES].freeze

    # A listener: its descriptor, its name in the unit, and where it listens.
    Activated = Struct.new(:descriptor, :name, :address)

    # The variables are for this process: what it starts is not to see them.
    def self.take
      pid, count, names = VARIABLES.map { |name| ENV.delete(name) }
      return new([]) unless pid.to_i == Process.pid

      names = names.to_s.split(":")
      new(Array.new(count.to_i) { |index| open(FIRST + index, names[index]) }.compact)
    end

    def self.open(number, name)
      socket = Socket.for_fd(number)
      socket.autoclose = false
      socket.close_on_exec = true
      Activated.new(number, name, show(socket.local_address))
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

    # Addresses of all, each as `systemd://` with its name or number.
    def uris = @sockets.map { |socket| "systemd://#{socket.name || socket.descriptor}" }.uniq

    # Descriptors that stand for `uri`: by name, or as they listen at the same address.
    def at(uri)
      # A path may have any bytes.
      uri = uri.b
      name = uri[%r{\Asystemd://(.+)\z}n, 1]
      @sockets.select do |socket|
        name ? [socket.name, socket.descriptor.to_s].include?(name) : same?(uri, socket.address)
      end
    end

    # Descriptors that a program which follows takes anew.
    def descriptors = @sockets.map(&:descriptor)

    private

    def same?(uri, address)
      uri = uri.split("?").first
      uri = uri.sub("localhost", "127.0.0.1") if address.include?("127.0.0.1")
      uri == address.b
    end
  end
end
