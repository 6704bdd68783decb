# frozen_string_literal: true

require_relative "../engine"
require_relative "../support/bare_socket"
require_relative "../support/failure"

module Thruway
  # The listening sockets of a server. Workers inherit their descriptors.
  class Listeners
    HINTS = {
      "in_use" => "another process listens there; stop it, or choose another port with -p",
      "denied" => "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose a higher one"
    }.freeze

    # The time for workers to accept queued connections when the server stops, and the interval
    # between two checks of the queues.
    ACCEPT_SECONDS = 0.1
    CHECK_SECONDS = 0.002

    # The prefix of the key of a metrics listener whose URI also serves requests. With a port that
    # the system chooses, the two listeners have different ports.
    METRICS_PREFIX = "metrics:"

    # The sockets for each configured URI: a list of descriptors, each followed by an address to
    # show.
    attr_reader :sockets

    # Opens the sockets, those for metrics last. Some may be open already: `inherited` from the
    # previous server, in the form of `sockets`, or `activated` by systemd.
    def initialize(uris, metrics: [], inherited: {}, activated: nil)
      @owner = Process.pid
      @inherited = inherited.dup
      @activated = activated
      @foreign = []
      @sockets = uris.uniq.to_h { |uri| [uri, open(uri)] }
      @metrics = metrics.uniq.to_h do |uri|
        name = @sockets.key?(uri) ? "#{METRICS_PREFIX}#{uri}" : uri
        [name, open(uri, name)]
      end
      @inherited.each_value { |left| shut_down(left) }
    end

    # Whether some of the sockets belong to systemd, which continues to listen on them.
    def shared? = @foreign.any?

    # The sockets to keep open in a hot restart: the server's own and systemd's.
    def inheritance
      own = all.reject { |_, sockets| @foreign.intersect?(sockets) }
      [own, @foreign]
    end

    # The index of the first descriptor that serves metrics; nil if there is none.
    def metrics_from = @metrics.empty? ? nil : @sockets.values.flatten.grep(Integer).size

    # The configured URIs of the listeners for requests.
    def uris = @sockets.keys

    # The descriptors. For a listener whose URI names certificates, or the folder of an agent that
    # obtains them, a pair of the descriptor and the URI.
    def descriptors
      all.flat_map do |uri, sockets|
        sockets.each_slice(2).map do |number, address|
          has_rules = address.start_with?("https://") || uri.include?("acme=")
          has_rules ? [number, uri.delete_prefix(METRICS_PREFIX)] : number
        end
      end
    end

    # The addresses to show, with the ports that the system chose.
    def addresses = @shown ||= @sockets.values.flatten.grep(String)

    def metrics_addresses = @shown_metrics ||= @metrics.values.flatten.grep(String)

    # Closes the sockets in this process, and removes the files of unix sockets that this process
    # has made. A second call does nothing, because another server may listen at the addresses by
    # then. May be called from a trap.
    def close
      addresses
      metrics_addresses
      left, @sockets, @metrics = all, {}, {}
      left.each_value { |sockets| shut_down(sockets) }
    end

    # Closes the sockets for all processes that share them, so that the system refuses further
    # connections. Workers first get `ACCEPT_SECONDS` to accept queued connections. Sockets of
    # systemd stay open.
    def close_for_all
      own = all.values.flatten.grep(Integer) - @foreign
      sockets = own.map { |descriptor| Socket.for_fd(descriptor) }
      sockets.each { |socket| socket.autoclose = false }
      limit = now + ACCEPT_SECONDS
      # With a timeout of zero, `select` would find nothing while a signal is pending.
      sleep CHECK_SECONDS while now < limit && IO.select(sockets, nil, nil, CHECK_SECONDS)
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
      # A worker has already shut the socket down.
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

    # The path of a unix socket; nil for an abstract one. The system supplies the path, because
    # control characters are escaped in the address to show.
    def path_of(descriptor)
      socket = Socket.for_fd(descriptor)
      socket.autoclose = false
      path = socket.local_address.unix_path
      path unless path.empty? || path.start_with?("\0")
    end

    # The descriptors and addresses for a URI. `localhost` has several. `name` is the key of an
    # inherited listener.
    def open(uri, name = uri)
      activated(uri) || @inherited.delete(name) || listen(uri)
    end

    def listen(uri)
      raise Failure, "systemd has passed no socket for #{uri}" if uri.start_with?("systemd://")

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
