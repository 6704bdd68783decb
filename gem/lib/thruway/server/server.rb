# frozen_string_literal: true

require_relative "../engine"
require_relative "../support/hooks"
require_relative "../support/latch"
require_relative "../support/redirection"
require_relative "../support/signals"
require_relative "empty_input"
require_relative "fiber_scheduler"
require_relative "hijack"
require_relative "sockets"
require_relative "stream"

module Thruway
  # The server of one process: an engine, the threads that drive the engine, and the parts of a
  # request that are too rare for Rust. The engine calls the methods below `private` by name.
  class Server
    TEXT = { "content-type" => "text/plain; charset=utf-8" }.freeze

    # The options of fibers for requests. From Ruby 3.2, fibers have storage.
    FIBER_OPTIONS =
      { blocking: false, **(Fiber.method_defined?(:storage) ? { storage: nil } : {}) }.freeze

    # The pause before another thread starts in the place of one that ended before it served.
    RESTART_PAUSE_SECONDS = 0.2

    EARLY_HINTS = "HTTP/1.1 103 Early Hints\r\n"

    # A header field in one line: a token, and a value without control characters.
    FIELD = /\A[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\z/n

    # Requires libraries that may be gems of the application's bundle. Must be called only after the
    # application has been loaded and has set up its bundle.
    def self.load_libraries
      require "socket"
      require "stringio"
    end

    attr_reader :engine

    # `listeners` are descriptors of listening sockets. In a cluster, `worker` is the index of this
    # process's entry in the worker `table`.
    def initialize(app, settings, listeners, table: nil, worker: 0)
      Redirection.fill
      self.class.load_libraries
      @settings = settings
      @threads = {}
      @ended = Thread::Queue.new
      @pid = Process.pid
      @over = Latch.new
      @engine = Engine.create(self, app: app, env: env_template, hijack: Hijack,
                                    listeners: listeners, sendfile: settings.sendfile,
                                    worker_table: table, worker: worker,
                                    **settings.thread_limits, **settings.engine_options)
    rescue RuntimeError => e
      # The engine refuses a setting, or there is no memory or descriptor for it.
      raise Failure, Failure.text("cannot serve: ", e.message)
    else
      @sockets = Sockets.new(@engine, settings) { |error, env| report(error, env) }
    end

    # Serves until the server has stopped and the last responses have been sent. If the application
    # kills a thread of the server, another thread replaces the killed one.
    def run
      load_thread = @settings.load_signal.start { @engine.stats } if @settings.load_report
      @settings.threads_min.times { |number| start_thread(number) }
      orders = forward_orders if threads_max > @threads.size
      until @threads.empty?
        name, stage, error = @ended.pop
        next start_ordered_thread unless name

        @threads.delete(name)&.join
        replace(name, stage, error) unless stage == :complete || @is_late
      end
      @over.open
      orders&.kill&.join
      load_thread&.kill&.join
    end

    # Stops accepting connections, and lets `run` end within `seconds`, or without a limit if nil.
    # With `closes_for_all`, no other process can accept from the listeners either. May be called
    # from a trap, and before `run`.
    def stop(seconds = @settings.drain_seconds, closes_for_all: true)
      Signals.write(Signals.backtraces) if @settings.shutdown_debug == true
      @is_stopping = true
      @engine.drain(closes_for_all)
      @stopper ||= Thread.new { end_late_threads(seconds) } if seconds
    end

    # Hands the connections over to other workers, and lets `run` end within `seconds`, or without a
    # limit if nil. May be called from a trap.
    def retire(seconds)
      @is_stopping = true
      @engine.retire
      @stopper ||= Thread.new { end_late_threads(seconds) } if seconds
    end

    # Ends the remaining threads after `run`, so that the process can be forked.
    def close
      @stopper&.join
      @engine.close
    end

    # Fails health checks, and closes each connection after its next response. May be called from a
    # trap.
    def announce_end = @engine.announce_end

    # Reads the certificates again, as the engine also does when their files change. May be called
    # while the server serves, but not from a trap.
    def reload_certificates
      error = @engine.reload_certificates
      trouble(error) if error
    end

    private

    # Starts the thread with the given number. A thread inherits the interrupt mask of its creator.
    # Interrupts can reach the thread only while it serves, so `run` always learns of the thread's
    # end.
    def start_thread(name)
      Thread.handle_interrupt(Object => :never) do
        @threads[name] = Thread.new { serve_and_report_end(name) }
      end
    end

    # The most threads that can exist at the same time.
    def threads_max
      @settings.thread_limits.values_at(:threads, :max_io_threads, :waiting_threads).sum
    end

    # Starts a thread that forwards the engine's orders to `run`. The engine orders a thread when a
    # request is ready and all threads wait.
    def forward_orders
      Thread.new do
        Thread.current.name = "thruway-orders"
        @ended << nil while @engine.wait_for_order
      end
    end

    # Starts a thread with the lowest free number.
    def start_ordered_thread
      number = (0...threads_max).find { |each| !@threads.key?(each) } unless @is_late
      start_thread(number) if number
      @engine.arrive(!number.nil?)
    rescue ThreadError => e
      @engine.arrive(false)
      say("cannot start another thread: #{e.message}") unless @has_thread_error
      @has_thread_error = true
    end

    # Reports how far the thread came: to `:complete`, `:serving`, or not beyond the hook at its
    # start.
    def serve_and_report_end(name)
      stage = :starting
      Thread.handle_interrupt(Object => :immediate) { serve_as(name) { |reached| stage = reached } }
    rescue Exception => e # rubocop:disable Lint/RescueException
      # In a fork of this process, this thread is the main one, and exits as the application
      # demands.
      raise if Process.pid != @pid

      error = e
    ensure
      @ended << [name, stage, error]
    end

    def serve_as(name)
      Thread.current.name = "thruway-#{name}"
      Hooks.run(@settings, :before_thread_start)
      yield :serving
      @engine.serve(name)
      yield :complete
      Hooks.run(@settings, :before_thread_exit)
    end

    # Starts a thread in the place of one that has ended. If a hook ends each thread at its start,
    # no thread ever serves: the next one starts after a pause, and a stop does not wait for it.
    def replace(name, stage, error)
      cause = error ? "#{error.class}: #{error.message.lines.first&.chomp}" : "killed"
      return say("a thread ended before it served (#{cause})") if stage == :starting && @is_stopping

      say("a thread of the server ended unexpectedly (#{cause}); starting another")
      sleep RESTART_PAUSE_SECONDS if stage == :starting
      start_thread(name)
    end

    def end_late_threads(seconds)
      return if @over.wait(seconds)

      @is_late = true
      late = @threads.values
      say("#{late.size} threads are still busy after #{seconds} s; ending them")
      Signals.write(Signals.backtraces) if @settings.shutdown_debug
      @engine.give_up
      late.each(&:kill)
    end

    # The entries of every request's environment that the engine does not set.
    def env_template
      {
        "rack.version" => [1, 6].freeze, "rack.errors" => $stderr, "rack.input" => EmptyInput,
        "rack.url_scheme" => @settings.url_scheme || "http", "rack.run_once" => false,
        "rack.multithread" => threads_max > 1 || @settings.fibers > 0,
        "rack.multiprocess" => @settings.workers > 0,
        "rack.hijack?" => true, "puma.mark_as_io_bound" => method(:mark_as_io_bound),
        "thruway.mark_as_io_bound" => method(:mark_as_io_bound),
        "SCRIPT_NAME" => "", "SERVER_NAME" => "localhost", "SERVER_PORT" => "80",
        "SERVER_PROTOCOL" => "HTTP/1.1", "SERVER_SOFTWARE" => "thruway #{VERSION}",
        "GATEWAY_INTERFACE" => "CGI/1.2", "REMOTE_ADDR" => "127.0.0.1"
      }
    end

    # Marks the request as one that will wait for another service. Until the request ends, another
    # thread may take the place of its thread. The application calls this method.
    def mark_as_io_bound
      @engine.mark_as_io_bound
    end

    # Returns the scheduler of the calling thread's fibers.
    def scheduler = FiberScheduler.create

    # Returns a fiber that runs requests of the thread with the given number. The fiber inherits no
    # storage.
    def fiber(number)
      Fiber.new(**FIBER_OPTIONS) do
        @engine.run_fiber(number)
      rescue Exception => e # rubocop:disable Lint/RescueException
        # In a fork of this process, this fiber is the root, with whose exceptions Ruby ends the
        # process without a word.
        say(e.full_message(highlight: false).chomp) if Process.pid != @pid && !e.is_a?(SystemExit)
        raise
      end
    end

    # Sets the body of a request, and returns the object that the engine closes after the request.
    def input(env, bytes, file)
      env["rack.input"] = bytes ? StringIO.new(bytes) : file
    end

    # Sets the client's certificate, under the key that Puma uses.
    def certificate(env, der)
      require "openssl"
      env["puma.peercert"] = OpenSSL::X509::Certificate.new(der)
    end

    # Logs an exception of the application, and returns the response to send instead.
    def failed(error, env)
      report(error, env)
      handler = @settings.lowlevel_error_handler
      return plain_error(error) unless handler

      arguments = [error, env, 500]
      count = handler.arity.negative? ? arguments.size : handler.arity
      handler.call(*arguments.first(count))
    end

    # Logs an error of the engine.
    def trouble(text)
      say(text.force_encoding(Encoding::UTF_8))
    end

    # Writes a line to stderr. Errors are ignored, so that a full disk does not fail a request.
    def say(text, more = "")
      # Messages and requests may contain bytes in any encoding.
      $stderr.write("thruway: ".b << text.b << "\n" << more.b)
    rescue SystemCallError, IOError
      nil
    end

    def plain_error(error)
      shown = "an application error"
      shown = Failure.text(Hooks.message(error), " (", error.class, ")") if @settings.development?
      [500, TEXT, ["500 Internal Server Error: #{shown}\n"]]
    end

    def report(error, env)
      request = "  in #{env["REQUEST_METHOD"]} #{env["REQUEST_URI"]}\n" if env
      say(error.full_message(highlight: false).chomp, request)
    rescue StandardError
      # The encodings of the message and the backtrace are incompatible, or a method of the
      # exception raises.
      say(Hooks.describe(error), request)
    end

    # Closes the body after the response, and calls `rack.after_reply` and `rack.response_finished`.
    def finished(env, returned, body, error)
      body.close if body.is_a?(IO) && !body.closed?
      env["rack.after_reply"]&.each { |callback| guard(env) { callback.call } }
      status, headers = returned
      env["rack.response_finished"]&.reverse_each do |callback|
        guard(env) { callback.call(env, status, headers, error) }
      end
    end

    # Shields the other callbacks from an exception of one callback.
    def guard(env)
      yield
    rescue Exception => e # rubocop:disable Lint/RescueException
      # A fork of this process exits as the application demands.
      raise if Process.pid != @pid

      report(e, env)
    end

    # Upgrades a connection to a WebSocket or to a stream of events.
    def upgrade(ticket, env, headers, handler) = @sockets.upgrade(ticket, env, headers, handler)

    # Passes an event of an upgraded connection to its handler.
    def socket_event(request, kind, data) = @sockets.event(request, kind, data)

    # Calls a streaming body. Returns whether the stream is still open. In that case `input` is
    # closed with the stream, because the body may continue to read from another thread.
    def stream(ticket, body, env, input)
      stream = Stream.new(@engine, ticket, env["rack.input"])
      body.call(stream)
      stream.keep(input)
    end

    # Takes the connection of a request before any byte of a response has been sent (full hijack).
    def hijack(request)
      descriptor, read, env = @engine.take_connection(request)
      raise IOError, "the request has no connection that could be hijacked" unless descriptor

      io = socket(descriptor, read)
      env["rack.hijack_io"] = io
      io
    end

    # Sends early hints (103), unless the response has begun.
    def hint(request, headers)
      lines = headers.flat_map do |name, values|
        values = Array(values).flat_map { |value| value.to_s.split("\n") }
        values.map { |value| "#{name}: #{value}".b }
      end
      lines = lines.grep(FIELD)
      @engine.inform(request, "#{EARLY_HINTS}#{lines.join("\r\n")}\r\n\r\n") if lines.any?
    end

    # Gives the connection after the response's head to `rack.hijack` (partial hijack), or to a
    # streaming body on status 101. The callback owns the connection and closes it.
    def give_away(callback, descriptor, read)
      io = socket(descriptor, read)
      callback.call(io)
      is_taken = true
    ensure
      io&.close unless is_taken
    end

    def socket(descriptor, read)
      io = Socket.for_fd(descriptor)
      io = (io.local_address.unix? ? UNIXSocket : TCPSocket).for_fd(release(io))
      io.sync = true
      io.ungetbyte(read) unless read.empty?
      io
    end

    def release(io)
      io.autoclose = false
      io.fileno
    end

    # Returns the names and values, in turn, of headers that are not a Hash. Each is copied when it
    # is yielded. Headers may keep the block, so calls after the end are errors.
    def fields(headers)
      fields = []
      headers.each do |*pair|
        raise IOError, "headers yielded a field after their each returned" if fields.frozen?

        pair = pair.first if pair.size == 1 && pair.first.is_a?(Array)
        raise TypeError, "headers must yield pairs of a name and a value" unless pair.size == 2

        pair.each { |part| fields << (part.is_a?(String) ? part.dup : part) }
      end
      fields
    ensure
      fields.freeze
    end

    def bad_field(name)
      say("dropped the header #{name.inspect}: its name or value holds a control character")
    end

    # Returns the response to send instead of a file that cannot be sent.
    def no_file(path)
      say("cannot send #{path}: it is unreadable, or in no folder declared for X-Sendfile")
      [404, TEXT, ["404 Not Found\n"]]
    end
  end
end
