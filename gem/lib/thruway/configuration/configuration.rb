# frozen_string_literal: true

require_relative "../support/failure"
require_relative "../support/load_signal"
require_relative "../support/processors"

module Thruway
  # The settings of a server. Options of the command line take precedence over the configuration
  # file, and both over the defaults.
  class Configuration
    HOOKS = %i[before_fork before_worker_boot before_worker_shutdown before_worker_fork
               after_worker_fork after_worker_shutdown after_booted after_stopped
               before_thread_start before_thread_exit before_restart before_refork
               after_refork].freeze

    # Gems that use Puma's server like plugins do, started by a hook in the configuration file.
    PUMA_GEMS = /\b(?:PumaWorkerKiller|Barnes)\b/

    # A limit that no body reaches.
    NO_LIMIT = 1 << 62

    # The defaults. Times are those of Puma or nginx.
    DEFAULTS = {
      workers: 0, threads: 5, threads_min: nil, max_io_threads: 0, waiting_threads: 0,
      fibers: 0, port: 9292, rackup: "config.ru", preload: true,
      drain_seconds: 30, worker_shutdown_seconds: 30, worker_boot_seconds: 60,
      first_byte_seconds: 30, head_seconds: 30, body_seconds: 60, keep_alive_seconds: 75,
      write_seconds: 60, request_seconds: 0, body_bytes_max: 1 << 30,
      # Limits on bytes in memory that clients have not received: of a response written piece by
      # piece, and of all responses of a worker.
      response_memory_bytes_max: 4 << 20, worker_memory_bytes_max: 64 << 20,
      # The number of bytes of a response that go to a file before the application's writes block.
      response_file_bytes_max: 1 << 30,
      # The rate at which a client must receive a response, averaged over `write_seconds`.
      write_bytes_per_second_min: 256,
      # The longest message of a WebSocket, and the silence after which the server pings a client.
      socket_message_bytes_max: 1 << 20, socket_ping_seconds: 30, socket_compression: false,
      socket_origins: nil, http2: true, http2_sockets: false,
      request_line_bytes_max: 8 << 10, head_bytes_max: 32 << 10, head_fields_max: 100,
      url_scheme: nil, remote_address: nil, methods: nil, redirect: nil, log_requests: false,
      log_formatter: nil, early_hints: false, compress: nil, immutable_assets: nil,
      # Automatic certificates: the names, the agent's other settings, and the seconds for which
      # browsers accept only TLS.
      acme_domains: [].freeze, acme_directory: nil, acme_ca: nil, acme_contacts: [].freeze,
      acme_eab_kid: nil, acme_eab_key_file: nil, acme_key: nil, acme_storage: nil,
      acme_challenges: [].freeze, https_port: nil, https_redirect: nil, hsts_seconds: nil,
      program: nil,
      control: nil, state_path: nil, state_permission: nil,
      fiber_per_request: false, syncs_output: true, shutdown_debug: false,
      lowlevel_error_handler: nil, yjit: nil, warm_up: true,
      # The unit of fairness, by the engine's name. For the two other settings, 0 and "" disable the
      # feature.
      fair_by: "connection", queue_seconds_max: 0, health_check: "",
      # The time for which a stopping server still accepts connections while its health checks fail.
      drain_delay_seconds: 0,
      # The limits at which a worker is replaced; nil for none.
      worker_hang_seconds: nil, worker_requests_max: nil, worker_megabytes_max: nil,
      worker_age_seconds_max: nil, worker_check_seconds: 5, refork_after: nil, restart_words: nil,
      restart_file: nil, activated_sockets: nil,
      # Client addresses, and the metrics.
      client_source: "socket", trusted_proxies: "",
      counts: false, metrics_listener: nil, status_page: false,
      # The cache of responses that all workers share, and the longest body in it; 0 for no cache.
      cache_bytes_max: 0, cache_item_bytes_max: 1 << 20,
      # The load reports for balancers: at an address, and in a field of each response.
      agent_check: nil, load_report: false
    }.freeze

    # Options of the agent that obtains certificates, and the settings of their values.
    ACME_WORDS = {
      "--acme-directory" => :acme_directory, "--acme-ca" => :acme_ca,
      "--acme-eab-kid" => :acme_eab_kid, "--acme-eab-key-file" => :acme_eab_key_file,
      "--acme-storage" => :acme_storage, "--https-port" => :https_port,
      "--https-redirect" => :https_redirect
    }.freeze

    # The allowed ranges. A larger number of workers or threads is probably a typing error. The
    # parser has room for 128 fields. The shortest request line, `GET / HTTP/1.1` with its line end,
    # has 16 bytes.
    LIMITS = {
      workers: ["start %d workers", 0..1024], threads: ["start %d threads", 1..1024],
      max_io_threads: ["start %d threads for marked requests", 0..1024],
      waiting_threads: ["start %d threads for requests that wait", 0..1024],
      fibers: ["run %d requests in fibers", 0..30_000],
      head_fields_max: ["take heads of %d fields", 1..128],
      head_bytes_max: ["take heads of %d bytes", 16...(1 << 32)],
      request_line_bytes_max: ["take request lines of %d bytes", 16...(1 << 32)]
    }.freeze

    # The sizes that a cache may have.
    CACHE_LIMITS = ((1 << 20)..(1 << 40))

    attr_reader :options, :hooks, :binds, :sendfile, :metrics

    # Puma plugins by name.
    attr_reader :plugins

    # The options of plugins, by name.
    attr_accessor :puma_options

    def initialize
      @options = {}
      @hooks = HOOKS.to_h { |name| [name, []] }
      @binds = []
      @sendfile = []
      @metrics = []
      @plugins = {}
      @puma_options = {}
    end

    (DEFAULTS.keys - %i[workers threads threads_min keep_alive_seconds]).each do |name|
      define_method(name) { @options.fetch(name, DEFAULTS[name]) }
    end

    # The number of workers. Puma's variables take precedence over the default.
    def workers
      @options.fetch(:workers) do
        text = variable("WEB_CONCURRENCY")
        text == "auto" ? Processors.count : number("WEB_CONCURRENCY") || DEFAULTS[:workers]
      end
    end

    # The silence after which a kept connection is closed. Puma's variable takes precedence over the
    # default.
    def keep_alive_seconds
      @options.fetch(:keep_alive_seconds) do
        number("PUMA_PERSISTENT_TIMEOUT") || DEFAULTS[:keep_alive_seconds]
      end
    end

    # The maximum number of threads: the larger number of Puma's variables, if they are set.
    def threads
      @options.fetch(:threads) do
        most = number("PUMA_MAX_THREADS", "MAX_THREADS") || DEFAULTS[:threads]
        [most, number("PUMA_MIN_THREADS", "MIN_THREADS") || 1].max
      end
    end

    # The number of threads that run for the server's whole life: at least one.
    def threads_min
      least = @options.fetch(:threads_min) do
        @options[:threads] || number("PUMA_MIN_THREADS", "MIN_THREADS") || threads
      end
      least.clamp(1, threads)
    end

    # The engine's settings for threads.
    def thread_limits
      { threads: threads, threads_min: threads_min, max_io_threads: max_io_threads,
        waiting_threads: waiting_threads, fibers: fibers }
    end

    # Raises `Failure` for settings that are out of range or contradict each other.
    def check
      LIMITS.each do |name, (text, limits)|
        count = public_send(name)
        next if limits.cover?(count)

        raise Failure, "cannot #{format(text, count)}: it must be #{limits.min} to #{limits.max}"
      end
      check_cache
      check_acme
      check_words
      return if !status_page || @metrics.any?

      raise Failure.new("--status needs a metrics listener", hint: "add --metrics URI")
    end

    # Raises `Failure` for values that no request matches, or that would keep a processor busy.
    def check_words
      path = health_check.to_s
      unless path.empty? || path.start_with?("/")
        raise Failure.new("no request has the path #{path} of health_check",
                          hint: "begin the path with /")
      end
      return if worker_check_seconds.positive?

      raise Failure, "worker_check_interval must be more than 0 seconds"
    end

    # Raises `Failure` for a cache that is too small to be of use, or larger than any memory. Warns
    # of a limit without a cache. The limit is not an error, because several servers may share its
    # environment variable.
    def check_cache
      if @options.key?(:cache_item_bytes_max) && !@options.key?(:cache_bytes_max)
        warn "thruway: the limit of cached bodies has no effect: there is no cache\n\n" \
             "hint: add --cache SIZE"
      end
      return if cache_bytes_max.zero? || CACHE_LIMITS.cover?(cache_bytes_max)

      raise Failure.new("cannot make a cache of #{cache_bytes_max} bytes",
                        hint: "give --cache a size from 1M to 1024G, or 0 for none")
    end

    # The environment. Variables are tried in Puma's order, which begins with Sinatra's variable.
    def environment
      option = @options[:environment].to_s
      option.empty? ? variable("APP_ENV", "RACK_ENV", "RAILS_ENV") || "development" : option
    end

    def development?
      environment == "development"
    end

    # Whether the environment is a developer's, in which processes do not live long.
    def local?
      development? || environment == "test"
    end

    def pidfile
      # Configuration files may set the path from a missing variable, or to `false`.
      path = @options[:pidfile] || ""
      path unless path.empty?
    end

    # The text in brackets in the process title, which omits an empty tag.
    def tag
      @options.fetch(:tag) { File.basename(Dir.pwd) }
    end

    # Sets an option that has no value yet.
    def offer(name, value)
      @options[name] = value unless @options.key?(name)
    end

    # The addresses to listen on: the configured addresses, or the sockets that systemd has opened.
    # The default is the port, on the loopback interface in development and on all interfaces
    # otherwise.
    def addresses(activation = nil)
      activated = activation ? activation.uris : []
      return activated if activated_sockets == :only && activated.any?

      addresses = @binds
      # With a port on the command line, `@binds` contains only the addresses of `--bind`.
      addresses += ["tcp://#{host}:#{port}"] if addresses.any? && options.key?(:port)
      addresses += activated if activated_sockets
      addresses = activated if addresses.empty? && !options.key?(:port)
      addresses.empty? ? ["tcp://#{host}:#{port}"] : addresses
    end

    # Whether code may look into the server as Puma's plugins do: a plugin, or one of the
    # `PUMA_GEMS` in the configuration file.
    def shows_puma? = plugins.any? || source.any? { |text| PUMA_GEMS.match?(text.b) }

    # Whether certificates are obtained from an authority.
    def acme? = acme_domains.any?

    # The options of the agent that obtains certificates.
    def acme_words
      lists = { "--acme-domain" => acme_domains, "--acme-contact" => acme_contacts,
                "--acme-challenge" => acme_challenges }
      lists.flat_map { |option, values| values.flat_map { |value| [option, value.to_s] } } +
        ACME_WORDS.flat_map do |option, name|
          value = public_send(name)
          value.nil? ? [] : [option, value.to_s]
        end
    end

    # Adds HSTS to the addresses that speak TLS. Raises `Failure` if none does.
    def with_hsts(uris)
      return uris unless hsts_seconds

      if uris.none? { |uri| uri.start_with?("ssl://") }
        raise Failure.new("hsts needs an address that speaks TLS",
                          hint: "add --bind ssl://HOST:PORT?cert=FILE&key=FILE, or " \
                                "--acme-domain NAME")
      end
      uris.map do |uri|
        next uri if !uri.start_with?("ssl://") || uri.match?(/[?&]hsts=/)

        "#{uri}#{uri.include?("?") ? "&" : "?"}hsts=#{hsts_seconds}"
      end
    end

    # The load of the server, including all its workers.
    def load_signal = @load_signal ||= LoadSignal.new

    # The paths and texts of the configuration files. Two configurations are equal if these are.
    def source = @source ||= []

    # Whether workers send heartbeats.
    def watches_workers?
      [worker_hang_seconds, worker_requests_max, worker_megabytes_max, worker_age_seconds_max,
       refork_after].any?
    end

    def host
      @options[:host] || (development? ? "127.0.0.1" : "0.0.0.0")
    end

    # The settings of the engine, in the engine's units.
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
        trusted_proxies: trusted_proxies,
        cache_bytes_max: cache_bytes_max, cache_item_bytes_max: cache_item_bytes_max
      }
    end

    # Changes to the folder that the word `directory` names, and sets the variable by which Rack and
    # the application find the environment.
    def enter
      ENV["RACK_ENV"] = environment
      directory = @options[:directory]
      Dir.chdir(directory) if directory
    rescue SystemCallError => e
      raise Failure, "cannot change to the folder of the word directory: #{e.message}"
    end

    # Declares a folder whose files the application may send, by their paths or below `as`.
    def declare(folder, as: nil)
      # An empty Pathname is an empty folder.
      if folder.to_s.empty? || as == ""
        raise Failure.new("cannot declare a folder or a prefix without a name",
                          hint: "name the folder from which the application may send files")
      end

      folder = File.expand_path(folder)
      @sendfile << [as || folder, folder]
    end

    # Whether the engine keeps counters, because a part of the server reads them.
    def counts? = !!(counts || agent_check || load_report || @metrics.any?)

    def run_hooks(name, *arguments)
      @hooks.fetch(name).each { |hook| hook.call(*arguments) }
    end

    private

    # Raises `Failure` for options of certificates without a name, which would have no effect.
    def check_acme
      return if acme?

      name = ACME_WORDS.values.find { |option| @options[option] } or return
      raise Failure.new("#{name} needs a name to obtain a certificate for",
                        hint: "add --acme-domain NAME, or acme_domain in the configuration file")
    end

    # The value of the first variable in `names` that is set and not blank. A value may have any
    # bytes, at which `strip` of its own encoding would raise.
    def variable(*names)
      values = ENV.values_at(*names).compact
      texts = values.map { |text| text.b.strip.force_encoding(text.encoding) }
      texts.find { |text| !text.empty? }
    end

    def number(*names)
      text = variable(*names)
      text && Integer(text)
    rescue ArgumentError
      raise Failure, "cannot start: #{names.find { |name| variable(name) }} is not a number"
    end

    def ms(seconds)
      (seconds * 1000).to_i
    end
  end
end
