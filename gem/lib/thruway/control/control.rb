# frozen_string_literal: true

require_relative "../server/listeners"
require_relative "../support/bare_socket"
require_relative "../support/failure"
require_relative "../support/json"
require_relative "statistics"

module Thruway
  # The control application (`activate_control_app`), which responds to the commands of operators at
  # an address of its own, compatibly with Puma. Runs in threads of the supervisor, or of the only
  # process if there is no supervisor.
  class Control
    # Limits of a connection: the time and the size of its request, and the number of connections
    # served at the same time.
    REQUEST_SECONDS = 5
    REQUEST_BYTES_MAX = 8 << 10
    CONNECTIONS_MAX = 8

    # The pause between two equal signals. Without a pause, the kernel would merge both.
    HALT_PAUSE_SECONDS = 0.1

    # Commands, and the signals that they send to the server.
    SIGNALS = { "stop" => "TERM", "restart" => "USR2", "phased-restart" => "USR1",
                "refork" => "URG" }.freeze

    # Commands that need workers.
    WORKER_COMMANDS = %w[phased-restart refork reload-worker-directory].freeze

    # The commands that `data_only` allows, as in Puma.
    DATA_COMMANDS = %w[stats gc-stats].freeze

    DONE = Json.generate("status" => "ok")

    attr_reader :address, :token

    # Opens the control application of the configuration. Returns nil if none is configured.
    def self.open(configuration)
      new(configuration, **configuration.control) if configuration.control
    end

    # With `data_only`, only commands that change nothing are allowed.
    def initialize(configuration, uri:, token:, data_only: false)
      @configuration = configuration
      @token = token
      @data_only = data_only
      @listeners = Listeners.new([uri])
      @address = @listeners.addresses.first.sub(/\Ahttp:/, "tcp:")
      close_in_workers(configuration)
    end

    # Makes workers close the sockets.
    def close_in_workers(configuration)
      configuration.hooks[:before_worker_boot].unshift(->(*) { forget })
    end

    # Starts to respond. The block returns the server's counters as JSON. `purge` removes the
    # responses that match a pattern from the cache, and returns their number.
    def start(purge: nil, &stats)
      @stats = stats
      @purge = purge
      @started_at = Time.now
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

    # The content of the state file, in which `thruway ctl -S` and pumactl find the server.
    def state
      { "pid" => Process.pid, "control_url" => @address, "control_auth_token" => @token.to_s,
        "running_from" => Dir.pwd }
    end

    private

    # Closes the sockets in a child, once. In a child of the child, the descriptors may belong to
    # other files.
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
      # `shutdown` ends the connection even if a process forked in the meantime holds it too.
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

    # Returns the target of a request, or nil if the request is invalid or late.
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
      return refuse("400 Bad Request", "invalid request") unless target

      path, query = target.split("?", 2)
      return ["403 Forbidden", "text/plain", "Invalid auth token"] unless knows_token?(query)

      act(path.delete_prefix("/"), query)
    end

    # Compares the token in constant time.
    def knows_token?(query)
      return true if @token.nil?

      given = query.to_s.split("&").filter_map { |pair| pair[/\Atoken=(.*)\z/m, 1] }.last.to_s
      given.bytesize == @token.bytesize &&
        given.bytes.zip(@token.bytes).inject(0) { |sum, (one, other)| sum | (one ^ other) }.zero?
    end

    def act(name, query = nil)
      if @data_only && !DATA_COMMANDS.include?(name)
        return refuse("404 Not Found", "Command #{name.inspect} unavailable")
      end

      case name
      when "stats" then json(statistics)
      when "gc" then GC.start && nil || done
      when "gc-stats" then json(GC.stat)
      when "thread-backtraces" then json(backtraces)
      when "halt" then halt
      when "purge" then purge(parameter(query, "url"))
      when "reload-worker-directory", *SIGNALS.keys then order(name)
      else refuse("404 Not Found", "Unsupported action")
      end
    end

    # Returns the decoded value of a parameter, or nil if it is missing.
    def parameter(query, name)
      pair = query.to_s.split("&").find { |one| one.start_with?("#{name}=") } or return
      pair.split("=", 2).last.gsub(/%\h\h/) { |code| [code[1..]].pack("H2") }
    end

    def purge(pattern)
      return refuse("400 Bad Request", "purge needs a url") if pattern.to_s.empty?

      json("purged" => @purge.call(pattern))
    rescue ArgumentError => e
      refuse("400 Bad Request", e.message)
    end

    def statistics
      Statistics.as_puma(Json.parse(@stats.call), started_at: @started_at,
                                                  clustered: @configuration.workers.positive?)
    end

    def backtraces
      Thread.list.map do |thread|
        { name: thread.name || thread.inspect, backtrace: thread.backtrace }
      end
    end

    # Follows a command by a signal. `reload-worker-directory` needs no action: a phased restart
    # resolves symbolic links to the release anew.
    def order(name)
      if WORKER_COMMANDS.include?(name) && @configuration.workers.zero?
        return refuse("404 Not Found", "#{name} not available")
      end

      Process.kill(SIGNALS[name], Process.pid) if SIGNALS.key?(name)
      done
    end

    # Stops the server at once, by two INT signals. The pause before the first signal leaves time
    # for the response.
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
