# frozen_string_literal: true

require "socket"

require_relative "../thruway"
require_relative "failure"

module Thruway
  # The sockets that a server listens on. Workers inherit their descriptors.
  class Listeners
    HINTS = {
      "in_use" => "another process listens there; stop it, or choose another port with -p",
      "denied" => "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose one above"
    }.freeze

    # How long workers have for the connections that wait when the server stops.
    MOMENT_SECONDS = 0.1
    LOOK_SECONDS = 0.002

    # Addresses as they are shown: with the ports that the system chose.
    attr_reader :addresses, :metrics_addresses

    # Those for metrics come last.
    def initialize(uris, metrics: [])
      @owner = Process.pid
      @descriptors = []
      @addresses = []
      @metrics_addresses = []
      @uris = {}
      uris.each { |uri| open(uri, @addresses) }
      @metrics_from = @descriptors.size unless metrics.empty?
      metrics.each { |uri| open(uri, @metrics_addresses) }
    end

    # Which of the descriptors is the first for metrics; nil without any.
    attr_reader :metrics_from

    # Descriptors; where TLS is spoken, each in a pair with the URI that names the certificates.
    def descriptors
      @descriptors.map { |number| @uris.key?(number) ? [number, @uris[number]] : number }
    end

    # Closes them, once: later, others may listen there. The files of unix sockets go with the
    # process that made them. It may be called from a trap.
    def close
      sockets, @descriptors = @descriptors.map { |descriptor| IO.for_fd(descriptor) }, []
      return if sockets.empty?

      sockets.each(&:close)
      addresses = @addresses + @metrics_addresses
      paths = addresses.filter_map { |address| address[%r{\Aunix://([^@].*)}, 1] }
      File.delete(*paths.select { |path| File.socket?(path) }) if Process.pid == @owner
    end

    # Closes them for all processes that have them: the system refuses connections from now on.
    # Those that wait already are left to the workers for a moment.
    def close_for_all
      sockets = @descriptors.map { |descriptor| Socket.for_fd(descriptor) }
      sockets.each { |socket| socket.autoclose = false }
      limit = now + MOMENT_SECONDS
      sleep LOOK_SECONDS while now < limit && IO.select(sockets, nil, nil, 0)
      sockets.each { |socket| shut(socket) }
      close
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def shut(socket)
      socket.shutdown(Socket::SHUT_RD)
    rescue SystemCallError
      # A worker has done it already.
      nil
    end

    def open(uri, addresses)
      descriptor, message, kind = *listening = Engine.listen(uri)
      raise Failure.new(message, hint: HINTS[kind]) unless descriptor

      # `localhost` is several.
      listening.each_slice(2) do |number, address|
        @descriptors << number
        addresses << address
        @uris[number] = uri if address.start_with?("https://")
      end
    end
  end
end
