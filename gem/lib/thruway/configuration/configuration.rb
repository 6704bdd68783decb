# frozen_string_literal: true

require_relative "../support/failure"
require_relative "../support/load_signal"
require_relative "../support/processors"

module Thruway
  # What a server is told, by options, a file and defaults, in the order of their rank.
  class Configuration
    HOOKS = %i[before_fork before_worker_boot before_worker_shutdown before_worker_fork
               after_worker_fork after_worker_shutdown after_booted after_stopped
               before_thread_start before_thread_exit before_restart before_refork
               after_refork].freeze

    # More bytes than any body has.
    NO_LIMIT = 1 << 62

    # What holds where nothing else is said. Times are Puma's or nginx's.
    DEFAULTS = {
      workers: 0, threads: 5, port: 9292, rackup: "config.ru", preload: true,
      drain_seconds: 30, worker_shutdown_seconds: 30, worker_boot_seconds: 60,
      first_byte_seconds: 30, head_seconds: 30, body_seconds: 60, keep_alive_seconds: 75,
      write_seconds: 60, request_seconds: 0, body_bytes_max: 1 << 30,
      # What a client has not taken: of a response that is written piece by piece, and of all.
      response_memory_bytes_max: 4 << 20, worker_memory_bytes_max: 64 << 20,
      # What of a response goes to a file, before whatever writes it waits for the client.
      response_file_bytes_max: 1 << 30,
      # What a client has to take each second, on average over `write_seconds`.
      write_bytes_per_second_min: 256,
      # Of a client's message on a WebSocket; how long it may be silent before it is pinged.
      socket_message_bytes_max: 1 << 20, socket_ping_seconds: 30, socket_compression: false,
      socket_origins: nil, http2: true, http2_sockets: false,
      request_line_bytes_max: 8 << 10, head_bytes_max: 32 << 10, head_fields_max: 100,
      url_scheme: nil, remote_address: nil, methods: nil, redirect: nil, log_requests: false,
      log_formatter: nil, early_hints: false, compress: nil, immutable_assets: nil,
      control: nil, state_path: nil, state_permission: nil,
      fiber_per_request: false, syncs_output: true, shutdown_debug: false,
      lowlevel_error_handler: nil, yjit: nil, warm_up: true,
      # What a client is, in the engine's words; zero and empty are none.
      fair_by: "connection", queue_seconds_max: 0, health_check: "",
      # How long a server accepts before it closes its listeners, while health checks fail.
      drain_delay_seconds: 0,
      # When a worker is replaced: none, if it is not said.
      worker_hang_seconds: nil, worker_requests_max: nil, worker_megabytes_max: nil,
      worker_age_seconds_max: nil, worker_check_seconds: 5, refork_after: nil, restart_words: nil,
      restart_file: nil, activated_sockets: nil,
      # What is counted, and where it is shown.
      client_source: "socket", trusted_proxies: "",
      counts: false, metrics_listener: nil, status_page: false,
      # What balancers are told: an address, and a field of each response.
      agent_check: nil, load_report: false
    }.freeze

    # What a machine can be asked for in earnest: more is a slip of the finger.
    # The parser has room for 128 fields.
    LIMITS = {
      workers: ["start %d workers", 0..1024], threads: ["start %d threads", 1..1024],
      head_fields_max: ["take heads of %d fields", 1..128]
    }.freeze

    attr_reader :options, :hooks, :binds, :sendfile, :metrics

    # Plugins of Puma by their names, and the options of the file as they see them.
    attr_reader :plugins
    attr_accessor :plugin_options

    def initialize
      @options = {}
      @hooks = HOOKS.to_h { |name| [name, []] }
      @binds = []
      @sendfile = []
      @metrics = []
      @plugins = {}
    end

    (DEFAULTS.keys - %i[workers threads]).each do |name|
      define_method(name) { @options.fetch(name, DEFAULTS[name]) }
    end

    # What holds where neither an option nor a file says anything: Puma's variables come before the
    # defaults. All threads run from the start, so only the larger number counts.
    def workers
      @options.fetch(:workers) do
        text = variable("WEB_CONCURRENCY")
        text == "auto" ? Processors.count : number("WEB_CONCURRENCY") || DEFAULTS[:workers]
      end
    end

    def threads
      @options.fetch(:threads) do
        most = number("PUMA_MAX_THREADS", "MAX_THREADS") || DEFAULTS[:threads]
        [most, number("PUMA_MIN_THREADS", "MIN_THREADS") || 1].max
      end
    end

    # Refuses what cannot be meant.
    def check
      LIMITS.each do |name, (text, limits)|
        count = public_send(name)
        next if limits.cover?(count)

        raise Failure, "cannot #{format(text, count)}: it must be #{limits.min} to #{limits.max}"
      end
      return if !status_page || @metrics.any?

      raise Failure.new("the live page has no address", hint: "say where, by --metrics")
    end

    # Variables have the order of Puma, where Sinatra's own comes first.
    def environment
      said = @options[:environment].to_s
      said.empty? ? variable("APP_ENV", "RACK_ENV", "RAILS_ENV") || "development" : said
    end

    def development?
      environment == "development"
    end

    # Where code is changed and run again, not run for long.
    def local?
      development? || environment == "test"
    end

    def pidfile
      # Files name it with variables that may be missing, or with `false`.
      path = @options[:pidfile] || ""
      path unless path.empty?
    end

    # What the process's title says in brackets; nothing if it is empty.
    def tag
      @options.fetch(:tag) { File.basename(Dir.pwd) }
    end

    # Takes what is said here unless it was said before.
    def offer(name, value)
      @options[name] = value unless @options.key?(name)
    end

    # Where to listen: what was said, or what systemd has opened. Without both, a port on the
    # loopback in development and everywhere else.
    def addresses(activation = nil)
      activated = activation ? activation.uris : []
      return activated if activated_sockets == :only && activated.any?

      said = @binds
      # Beside `--bind`: the file's binds are not taken where the command line has a port.
      said += ["tcp://#{host}:#{port}"] if said.any? && options.key?(:port)
      said += activated if activated_sockets
      said = activated if said.empty? && !options.key?(:port)
      said.empty? ? ["tcp://#{host}:#{port}"] : said
    end

    # How busy the server is, with all its workers.
    def load_signal = @load_signal ||= LoadSignal.new

    # The text that it was read from, by which two are compared.
    def source = @source ||= []

    # Whether workers tell at intervals how they are.
    def watches_workers?
      [worker_hang_seconds, worker_requests_max, worker_megabytes_max, worker_age_seconds_max,
       refork_after].any?
    end

    def host
      @options[:host] || (development? ? "127.0.0.1" : "0.0.0.0")
    end

    # For the engine, in its units.
    def engine_options
      {
        first_byte_ms: ms(first_byte_seconds), head_ms: ms(head_seconds), body_ms: ms(body_seconds),
        keep_alive_ms: ms(keep_alive_seconds), write_ms: ms(write_seconds),
        request_ms: ms(request_seconds), body_bytes_max: body_bytes_max,
        response_memory_bytes_max: response_memory_bytes_max.to_i,
        worker_memory_bytes_max: worker_memory_bytes_max.to_i,
        response_file_bytes_max: response_file_bytes_max.to_i,
        write_bytes_per_second_min: write_bytes_per_second_min.to_i,
        socket_message_bytes_max: socket_message_bytes_max.to_i,
        socket_ping_ms: ms(socket_ping_seconds),
        request_line_bytes_max: request_line_bytes_max.to_i, head_bytes_max: head_bytes_max.to_i,
        head_fields_max: head_fields_max.to_i, queue_ms: ms(queue_seconds_max),
        fair_by: fair_by, health_path: health_check.to_s,
        counts: counts?, metrics_listener: metrics_listener,
        has_status_page: status_page, has_http2: http2,
        has_http2_sockets: http2_sockets, client_source: client_source,
        trusted_proxies: trusted_proxies
      }
    end

    # Whether something shows what is counted.
    def counts? = !!(counts || agent_check || load_report || @metrics.any?)

    def run_hooks(name, *arguments)
      @hooks.fetch(name).each { |hook| hook.call(*arguments) }
    end

    private

    # The first of these variables that is set, and not empty.
    def variable(*names)
      ENV.values_at(*names).find { |text| text && !text.strip.empty? }&.strip
    end

    def number(*names)
      text = variable(*names)
      text && Integer(text)
    rescue ArgumentError
      raise Failure, "cannot start: #{names.find { |name| variable(name) }} is no number"
    end

    def ms(seconds)
      (seconds * 1000).to_i
    end
  end
end
