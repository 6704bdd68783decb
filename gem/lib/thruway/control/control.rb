# frozen_string_literal: true

require_relative "../server/listeners"
require_relative "../support/bare_socket"
require_relative "../support/failure"
require_relative "../support/json"
require_relative "statistics"

module Thruway
  # The control application (`activate_control_app`): what operators ask of a running server, at an
  # address of its own, as they ask Puma. A thread of the supervisor responds, or of the process
  # itself where there is no supervisor.
  class Control
    # What a connection has to send its request in, and how many are served at a time.
    REQUEST_SECONDS = 5
    REQUEST_BYTES_MAX = 8 << 10
    CONNECTIONS_MAX = 8

    # Between two signals of a kind, which would be one otherwise.
    HALT_PAUSE_SECONDS = 0.1

    # Paths, and the signals that they send to the server itself.
    SIGNALS = { "stop" => "TERM", "restart" => "USR2", "phased-restart" => "USR1",
                "refork" => "URG" }.freeze

    # Paths that have a meaning only where there are workers.
    OF_WORKERS = %w[phased-restart refork reload-worker-directory].freeze

    # Paths that give data, which are all that `data_only` leaves, as for Puma.
    DATA = %w[stats gc-stats].freeze

    DONE = Json.generate("status" => "ok")

    attr_reader :address, :token

    # As `configuration` has it; nil if it has none.
    def self.open(configuration)
      new(configuration, **configuration.control) if configuration.control
    end

    # With `data_only` it responds to no command that changes the server.
    def initialize(configuration, uri:, token:, data_only: false)
      @configuration = configuration
      @token = token
      @data_only = data_only
      @listeners = Listeners.new([uri])
      @address = @listeners.addresses.first.sub(/\Ahttp:/, "tcp:")
      spare(configuration)
    end

    # Workers have nothing to do with it.
    def spare(configuration)
      configuration.hooks[:before_worker_boot].unshift(->(*) { forget })
    end

    # Responds from now on. The block gives what the server has counted, as Json.
    def start(&stats)
      @stats = stats
      @started = Time.now
      @busy = Thread::SizedQueue.new(CONNECTIONS_MAX)
      @sockets = @listeners.descriptors.map { |descriptor| server(descriptor) }
      @thread = Thread.new do
        Thread.current.name = "thruway-control"
        loop { accept }
      end
    end

    def close
      @thread&.kill
      @listeners.close
    end

    # What the state file says, by which `thruway ctl -S` and pumactl find the server.
    def state
      { "pid" => Process.pid, "control_url" => @address, "control_auth_token" => @token.to_s,
        "running_from" => Dir.pwd }
    end

    private

    # In a child: the parent alone responds. A child of a child has other files by these numbers.
    def forget
      return if @is_forgotten

      @is_forgotten = true
      @listeners.descriptors.each { |descriptor| IO.for_fd(descriptor).close }
      @sockets&.each { |socket| socket.autoclose = false }
    end

    def server(descriptor)
      socket = Socket.for_fd(descriptor)
      socket.autoclose = false
      socket
    end

    def accept
      readable, = IO.select(@sockets)
      socket = BareSocket.accept(readable.first) or return

      @busy << true
      Thread.new { serve(socket) }
    rescue SystemCallError
      sleep 0.1
    end

    def serve(socket)
      status, type, body = respond(read_target(socket))
      head = "HTTP/1.0 #{status}\r\nContent-Type: #{type}\r\nContent-Length: #{body.bytesize}\r\n"
      write(socket, "#{head}Connection: close\r\n\r\n#{body}")
    rescue SystemCallError, IOError
      nil
    ensure
      # A process that is forked meanwhile holds the connection, too: this ends it for both.
      finish(socket)
      @busy.pop
    end

    def finish(socket)
      socket.shutdown
    rescue SystemCallError
      nil
    ensure
      socket.close
    end

    # The target of a request; nil if none comes in time.
    def read_target(socket)
      text = +""
      limit = now + REQUEST_SECONDS
      until text.include?("\r\n\r\n")
        return if text.bytesize > REQUEST_BYTES_MAX ||
                  !BareSocket.readable?(socket, limit - now)

        piece = socket.read_nonblock(REQUEST_BYTES_MAX, exception: false)
        return if piece.nil?

        text << piece if piece.is_a?(String)
      end
      text[%r{\A(?:GET|POST|HEAD) (\S+) HTTP/1\.[01]\r\n}, 1]
    end

    def write(socket, text)
      limit = now + REQUEST_SECONDS
      until text.empty?
        written = socket.write_nonblock(text, exception: false)
        if written == :wait_writable
          return unless BareSocket.writable?(socket, limit - now)
        else
          text = text.byteslice(written..)
        end
      end
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def respond(target)
      return refuse("400 Bad Request", "the request is not understood") unless target

      path, query = target.split("?", 2)
      return ["403 Forbidden", "text/plain", "Invalid auth token"] unless knows_token?(query)

      act(path.delete_prefix("/"))
    end

    # In a time that does not depend on how much of it is right.
    def knows_token?(query)
      return true if @token.nil?

      given = query.to_s.split("&").filter_map { |pair| pair[/\Atoken=(.*)\z/m, 1] }.last.to_s
      given.bytesize == @token.bytesize &&
        given.bytes.zip(@token.bytes).inject(0) { |sum, (one, other)| sum | (one ^ other) }.zero?
    end

    def act(name)
      if @data_only && !DATA.include?(name)
        return refuse("404 Not Found", "Command #{name.inspect} unavailable")
      end

      case name
      when "stats" then json(statistics)
      when "gc" then GC.start && nil || done
      when "gc-stats" then json(GC.stat)
      when "thread-backtraces" then json(backtraces)
      when "halt" then halt
      when "reload-worker-directory", *SIGNALS.keys then order(name)
      else refuse("404 Not Found", "Unsupported action")
      end
    end

    def statistics
      Statistics.as_puma(Json.parse(@stats.call), started: @started,
                                                  clustered: @configuration.workers.positive?)
    end

    def backtraces
      Thread.list.map do |thread|
        { name: thread.name || thread.inspect, backtrace: thread.backtrace }
      end
    end

    # A phased restart follows links to another release by itself.
    def order(name)
      if OF_WORKERS.include?(name) && @configuration.workers.zero?
        return refuse("404 Not Found", "#{name} not available")
      end

      Process.kill(SIGNALS[name], Process.pid) if SIGNALS.key?(name)
      done
    end

    # At once: the second INT does not wait for what has begun. The response goes before it.
    def halt
      Thread.new do
        2.times do
          sleep HALT_PAUSE_SECONDS
          Process.kill("INT", Process.pid)
        end
      end
      done
    end

    def done
      ["200 OK", "application/json", DONE]
    end

    def json(object)
      ["200 OK", "application/json", Json.generate(object)]
    end

    def refuse(status, text)
      [status, "application/json", Json.generate("error" => text)]
    end
  end
end
