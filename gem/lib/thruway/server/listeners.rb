# frozen_string_literal: true

require_relative "../engine"
require_relative "../support/bare_socket"
require_relative "../support/failure"

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

    # Begins the name of an address for metrics under which requests are served, too. Where the
    # system chooses the port, both have one.
    SECOND = "metrics:"

    # Of each address as it was asked for: descriptors, each with the address as it is shown.
    attr_reader :sockets

    # Those for metrics come last. Some may be open already: `inherited` from the server before this
    # one, in the form of `sockets`, or `activated` by systemd.
    def initialize(uris, metrics: [], inherited: {}, activated: nil)
      @owner = Process.pid
      @inherited = inherited.dup
      @activated = activated
      @foreign = []
      @sockets = uris.uniq.to_h { |uri| [uri, open(uri)] }
      @metrics = metrics.uniq.to_h do |uri|
        name = @sockets.key?(uri) ? "#{SECOND}#{uri}" : uri
        [name, open(uri, name)]
      end
      @inherited.each_value { |left| shut_down(left) }
    end

    # Whether systemd goes on with some of them.
    def shared? = @foreign.any?

    # What a program that this process becomes finds open: its own, and those of systemd.
    def inheritance
      own = all.reject { |_, sockets| @foreign.intersect?(sockets) }
      [own, @foreign]
    end

    # Which of the descriptors is the first for metrics; nil without any.
    def metrics_from = @metrics.empty? ? nil : @sockets.values.flatten.grep(Integer).size

    # Descriptors; where TLS is spoken, each in a pair with the URI that names the certificates.
    def descriptors
      all.flat_map do |uri, sockets|
        sockets.each_slice(2).map do |number, address|
          address.start_with?("https://") ? [number, uri.delete_prefix(SECOND)] : number
        end
      end
    end

    # Addresses as they are shown: with the ports that the system chose.
    def addresses = @shown ||= @sockets.values.flatten.grep(String)

    def metrics_addresses = @shown_metrics ||= @metrics.values.flatten.grep(String)

    # Closes them, once: later, others may listen there. The files of unix sockets go with the
    # process that made them. It may be called from a trap.
    def close
      addresses
      metrics_addresses
      left, @sockets, @metrics = all, {}, {}
      left.each_value { |sockets| shut_down(sockets) }
    end

    # Closes them for all processes that have them: the system refuses connections from now on.
    # Before that, workers have a moment to take those that wait. Sockets of systemd stay open: it
    # goes on with them.
    def close_for_all
      own = all.values.flatten.grep(Integer) - @foreign
      sockets = own.map { |descriptor| Socket.for_fd(descriptor) }
      sockets.each { |socket| socket.autoclose = false }
      limit = now + MOMENT_SECONDS
      sleep LOOK_SECONDS while now < limit && IO.select(sockets, nil, nil, 0)
      sockets.each { |socket| shut(socket) }
      close
    end

    private

    def all = @sockets.merge(@metrics)

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def shut(socket)
      socket.shutdown(Socket::SHUT_RD)
    rescue SystemCallError
      # A worker has done it already.
      nil
    end

    def shut_down(sockets)
      sockets.each_slice(2) do |descriptor, address|
        path = path_of(descriptor) if address.start_with?("unix://")
        IO.for_fd(descriptor).close
        is_own = Process.pid == @owner && !@foreign.include?(descriptor)
        File.delete(path) if path && is_own && File.socket?(path)
      end
    end

    # As the system has it: an address is shown without what would steer a terminal. None for a name
    # without a file.
    def path_of(descriptor)
      socket = Socket.for_fd(descriptor)
      socket.autoclose = false
      path = socket.local_address.unix_path
      path unless path.empty? || path.start_with?("\0")
    end

    # Descriptors and addresses: `localhost` is several.
    def open(uri, name = uri)
      activated(uri) || @inherited.delete(name) || listen(uri)
    end

    def listen(uri)
      raise Failure, "systemd has given no socket #{uri}" if uri.start_with?("systemd://")

      descriptor, message, kind = *listening = Engine.listen(uri)
      raise Failure.new(message, hint: HINTS[kind]) unless descriptor

      listening
    end

    def activated(uri)
      found = @activated ? @activated.at(uri) : []
      return if found.empty?

      @foreign.concat(found.map(&:descriptor))
      found.flat_map { |socket| [socket.descriptor, socket.address.sub(/\Atcp:/, "http:")] }
    end
  end
end
