# frozen_string_literal: true

require_relative "../server/origins"
require_relative "../support/processors"
require_relative "../support/shell_words"
require_relative "cache_directives"
require_relative "configuration"
require_relative "listen_directives"
require_relative "puma_names"
require_relative "puma_options"
require_relative "quantities"
require_relative "thruster_variables"
require_relative "unsupported_directives"

module Thruway
  # The directives of a configuration file: all of Puma's, and a few more. Each directive of Puma
  # works as in Puma, is an error, or is ignored with a line that names the substitute; see
  # `docs/reference/serve_configuration.md`. Options of the command line take precedence over the
  # file, and later directives over earlier ones.
  class ConfigurationFile
    include CacheDirectives
    include ListenDirectives
    include UnsupportedDirectives

    # A constant that configuration files for Puma 3 to 5 use, following Heroku's guide.
    DefaultRackup = "config.ru"

    # The module that configuration files know as `Puma`.
    Puma = PumaNames

    # Puma's names of hooks, old and new, and the names in `Configuration::HOOKS`.
    HOOKS = {
      before_fork: :before_fork, on_worker_boot: :before_worker_boot,
      before_worker_boot: :before_worker_boot, on_worker_shutdown: :before_worker_shutdown,
      before_worker_shutdown: :before_worker_shutdown, on_worker_fork: :before_worker_fork,
      before_worker_fork: :before_worker_fork, after_worker_fork: :after_worker_fork,
      after_worker_boot: :after_worker_fork, after_worker_shutdown: :after_worker_shutdown,
      on_booted: :after_booted, after_booted: :after_booted, on_stopped: :after_stopped,
      after_stopped: :after_stopped, on_thread_start: :before_thread_start,
      before_thread_start: :before_thread_start, on_thread_exit: :before_thread_exit,
      before_thread_exit: :before_thread_exit, before_restart: :before_restart,
      on_restart: :before_restart, before_refork: :before_refork, on_refork: :before_refork,
      after_refork: :after_refork
    }.freeze

    # Hooks that take an optional key. Hooks with the same key share a Hash.
    KEYED = %i[before_worker_boot before_worker_shutdown before_refork after_refork].freeze

    # Directives with one value, and the options that they set.
    VALUES = {
      environment: :environment, rackup: :rackup, pidfile: :pidfile, directory: :directory,
      rack_url_scheme: :url_scheme, tag: :tag, health_check: :health_check, state_path: :state_path,
      agent_check: :agent_check,
      acme_directory: :acme_directory, acme_ca: :acme_ca, acme_storage: :acme_storage
    }.freeze

    # Directives whose value is a number, and the options that they set.
    NUMBERS = {
      worker_shutdown_timeout: :worker_shutdown_seconds, worker_boot_timeout: :worker_boot_seconds,
      first_data_timeout: :first_byte_seconds, persistent_timeout: :keep_alive_seconds,
      head_timeout: :head_seconds, body_timeout: :body_seconds, write_timeout: :write_seconds,
      request_timeout: :request_seconds, request_line_limit: :request_line_bytes_max,
      head_limit: :head_bytes_max, head_fields_limit: :head_fields_max,
      response_memory_limit: :response_memory_bytes_max,
      worker_memory_limit: :worker_memory_bytes_max,
      response_file_limit: :response_file_bytes_max, write_rate_min: :write_bytes_per_second_min,
      socket_message_limit: :socket_message_bytes_max, socket_ping_interval: :socket_ping_seconds,
      queue_seconds_max: :queue_seconds_max, drain_delay: :drain_delay_seconds,
      https_port: :https_port,
      worker_timeout: :worker_hang_seconds, worker_check_interval: :worker_check_seconds,
      worker_max_requests: :worker_requests_max, worker_max_mb: :worker_megabytes_max,
      worker_max_age: :worker_age_seconds_max
    }.freeze

    # Directives that Puma has removed, each with a hint.
    REMOVED = {
      daemonize: "Puma 5 removed it: run the server as a service, for example of systemd",
      tcp_mode: "Puma 5 removed it: delete the line",
      tcp_mode!: "Puma 5 removed it: delete the line",
      worker_directory: "Puma 3 removed it: use directory",
      prune_bundler!: "use prune_bundler, or delete the line"
    }.freeze

    # The largest number: seconds are converted to milliseconds, within 64 bits.
    NUMBER_MAX = 10**15

    # Directives whose value is true unless given, and the options that they set.
    SWITCHES = {
      preload_app!: :preload, fiber_per_request: :fiber_per_request,
      clean_thread_locals: :fiber_per_request, yjit: :yjit, warm_up: :warm_up,
      nakayoshi_fork: :warm_up,
      mutate_stdout_and_stderr_to_sync_on_write: :syncs_output, status_page: :status_page,
      early_hints: :early_hints, load_report: :load_report,
      socket_compression: :socket_compression, http2: :http2,
      http2_sockets: :http2_sockets
    }.freeze

    # The fields in which trusted proxies report the client's address.
    FORWARDED = { forwarded: "forwarded", x_forwarded_for: "x_forwarded_for" }.freeze

    # Puma's names of options, for `get`.
    PUMA_OPTIONS = {
      max_threads: :threads, min_threads: :threads_min, preload_app: :preload,
      force_shutdown_after: :drain_seconds, first_data_timeout: :first_byte_seconds,
      persistent_timeout: :keep_alive_seconds, http_content_length_limit: :body_bytes_max
    }.merge(VALUES, NUMBERS).freeze

    # The files to look for in the current folder, in order.
    def self.names(environment)
      ["config/thruway.rb", "config/puma/#{environment}.rb", "config/puma.rb"]
    end

    # Reads the file at `path`, or the first of the usual files that exists. With `-`, reads none.
    def self.take(configuration, path = nil)
      path ||= names(configuration.environment).find { |name| File.file?(name) }
      return if path.nil? || path == "-"

      file = new(configuration).read(File.expand_path(path))
      file.warnings.each { |line| warn "thruway: #{line}" }
    end

    def initialize(configuration)
      @configuration = configuration
      # The names of options of the command line. The file cannot change these options.
      @fixed = configuration.options.keys
      @settings = {}
      @binds = []
      @metrics = []
      @blocks = { single: [], cluster: [] }
      @hook_data = Hash.new { |all, key| all[key] = {} }
      # Real configuration files use this variable by Puma's name, `@options`.
      @options = PumaOptions.new(self, @binds)
    end

    # Reads the file at `path`, and the files that it loads.
    def read(path)
      evaluate(path)
      finish
      self
    end

    VALUES.each do |word, option|
      define_method(word) { |value = nil| @settings[option] = text_of(value) }
    end

    NUMBERS.each do |word, option|
      define_method(word) do |value|
        number = quantity(option, value)
        raise ArgumentError, "#{word} must be 0 to #{NUMBER_MAX}, not #{number}" unless
          (0..NUMBER_MAX).cover?(number)

        @settings[option] = number
      end
    end

    SWITCHES.each do |word, option|
      define_method(word) { |answer = true| @settings[option] = answer }
    end

    HOOKS.each do |word, hook|
      define_method(word) do |*keys, &block|
        raise ArgumentError, "#{word} takes a block" unless block

        block = with_data(block, *keys) if KEYED.include?(hook) && keys.any?
        raise ArgumentError, "#{word} takes no key" if keys.any? && !KEYED.include?(hook)

        @configuration.hooks.fetch(hook) << block
      end
    end

    # Sets the mode of the state file.
    def state_permission(mode)
      raise ArgumentError, "state_permission takes a number such as 0o640" unless
        mode.nil? || mode.is_a?(Integer)

      @settings[:state_permission] = mode
    end

    # Applies Thruster's environment variables by their bare names, such as `TLS_DOMAIN`.
    def thruster
      ThrusterVariables.new(@configuration, bare: true).apply { |line| warnings << line }
      # The variables take precedence over the rest of the file.
      @fixed = @configuration.options.keys
    end

    # Logs requests in Puma's format, or with `:json` as JSON.
    def log_requests(answer = true)
      raise ArgumentError, "log_requests takes true, false or :json" unless
        [true, false, nil, :json].include?(answer)

      @settings[:log_requests] = answer
    end

    # Formats each line of `log_requests`.
    def log_formatter(&block)
      @settings[:log_formatter] = callable(block)
    end

    # Compresses responses: all of them with `:all`, and otherwise those that are not for a single
    # user.
    def compress(which = true)
      raise ArgumentError, "compress takes true, false or :all" unless
        [true, false, nil, :all].include?(which)

      @settings[:compress] = which
    end

    # Sets the path of assets with digests in their names, which clients may cache forever.
    def immutable_assets(folder = "/assets")
      raise ArgumentError, "immutable_assets takes a path that begins with /" unless
        !folder || folder.to_s.start_with?("/")

      @settings[:immutable_assets] = folder
    end

    # Sets the origins whose pages may open WebSockets, or `:any`. The default is the same host.
    def socket_origins(*origins)
      origins.flatten!
      unknown = origins.reject { |origin| Origins.known?(origin) }
      unless unknown.empty? || origins == [:any]
        refuse("socket_origins", "#{unknown.first.inspect} cannot match an origin: a browser " \
                                 "sends the scheme, the host in lower case, and a port that is " \
                                 "not the default",
               'use "https://shop.example", a Regexp, or :any alone')
      end
      @settings[:socket_origins] = unknown.empty? ? origins : :any
    end

    def quiet(answer = true)
      @settings[:log_requests] = !answer
    end

    def workers(count)
      count = Processors.count if count.to_s == "auto"
      @settings[:workers] = Integer(count || 0)
    end

    # Reforks once a worker has served this many requests; with 0, only on request.
    def fork_worker(requests = 1000)
      @settings[:refork_after] = Integer(requests)
    end

    # Sets the number of threads. Threads beyond `min` start when all others wait.
    def threads(min, max = min)
      @settings[:threads_min], @settings[:threads] = [Integer(min), Integer(max)].minmax
    end

    # Sets the number of threads, beside the usual ones, for requests that the application marks as
    # waiting.
    def max_io_threads(count)
      @settings[:max_io_threads] = Integer(count || 0)
    end

    # Sets the number of threads, beside the usual ones, for requests that the server finds waiting.
    def waiting_threads(count)
      @settings[:waiting_threads] = Integer(count || 0)
    end

    # Runs requests in fibers, at most `count` at a time in each worker.
    def fibers(count)
      @settings[:fibers] = Integer(count || 0)
    end

    # Sets the command for hot restarts. The default is the command that started the server.
    def restart_command(command)
      @settings[:restart_words] = ShellWords.split(command.to_s)
    end

    def app(object = nil, &block)
      @settings[:app] = callable(object || block)
    end

    def lowlevel_error_handler(object = nil, &block)
      @settings[:lowlevel_error_handler] = callable(object || block)
    end

    def force_shutdown_after(seconds = :forever)
      # Puma's own number for `:forever` is -1.
      words = { forever: nil, -1 => nil, immediately: 0 }
      @settings[:drain_seconds] = words.fetch(seconds) { Float(Quantities.seconds(seconds)) }
    end

    # `nil` removes the limit, as in Puma.
    def http_content_length_limit(bytes)
      @settings[:body_bytes_max] = bytes ? Quantities.bytes(bytes) : Configuration::NO_LIMIT
    end

    def stdout_redirect(stdout = nil, stderr = nil, append = false)
      @settings[:redirect] = { stdout: stdout, stderr: stderr, append: append }
    end

    def shutdown_debug(answer = true, on_force: false)
      @settings[:shutdown_debug] = answer && on_force ? :on_force : answer
    end

    def supported_http_methods(methods)
      known = methods == :any || (methods.is_a?(Array) && methods.any? &&
                                  methods.all?(String) && methods.uniq == methods)
      raise ArgumentError, "the methods must be :any or an Array of different Strings" unless known

      @settings[:methods] = methods == :any ? nil : methods
    end

    # Sets the source of a request's client address.
    def set_remote_address(source = :socket)
      @settings[:client_source] = client_source_of(source)
      @settings[:remote_address] =
        case source
        when :socket, *FORWARDED.keys, { proxy_protocol: :v1 }, { proxy_protocol: :v2 } then nil
        when :localhost then "127.0.0.1"
        when String then source
        else header_of(source)
        end
    end

    # Sets the addresses and networks of trusted proxies.
    def trusted_proxies(*addresses)
      @settings[:trusted_proxies] = addresses.flatten.join(",")
    end

    # Sets the unit of fairness, which counts as one client: `:connection`, `:address`, or the value
    # of a `header` that a proxy sets.
    def fair_by(kind = nil, header: nil)
      kinds = %i[connection address]
      unless kinds.include?(kind) ^ header.is_a?(String)
        raise ArgumentError, "fair_by takes :connection, :address or a header:"
      end

      @settings[:fair_by] = header ? "header:#{header}" : kind.to_s
    end

    # Lets the application send files below `folder`: by X-Sendfile with their paths, or by
    # X-Accel-Redirect with paths that begin with `as`.
    def sendfile(folder, as: nil)
      @configuration.declare(folder, as: as)
    end

    # Registers a block for servers without workers, to be called after all files are read.
    def single(&block)
      @blocks[:single] << block
    end

    # Registers a block for servers with workers, to be called after all files are read.
    def cluster(&block)
      @blocks[:cluster] << block
    end

    def inject(&block)
      instance_eval(&block)
    end

    def get(key, default = nil)
      option = PUMA_OPTIONS.fetch(key.to_sym, key.to_sym)
      @configuration.options.fetch(option) { @settings.fetch(option, default) }
    end

    # Whether the file loads plugins, which may have directives and options of their own.
    def plugins? = @configuration.plugins.any?

    # Reads another file at this point.
    def load(path)
      evaluate(File.expand_path(path))
    end

    private

    def evaluate(path)
      outer, @path = @path, path
      text = File.read(path)
      @configuration.source << path << text
      evaluate_text(text, path)
    rescue Failure
      raise
    rescue ScriptError, StandardError => e
      place = e.backtrace&.find { |line| line.start_with?(path) } || e.class
      message = e.message.lines.first&.chomp
      raise Failure, Failure.text("cannot read ", path, ": ", message, " (", place, ")")
    ensure
      @path = outer
    end

    def finish
      @configuration.plugins.each_value do |plugin|
        plugin.config(self) if plugin.respond_to?(:config)
      end
      take_options
      run_blocks
      take_options
      @configuration.metrics.concat(@metrics) if @configuration.metrics.empty?
      return if @configuration.binds.any? || @configuration.options.key?(:port)

      # A typical file sets a port for development, behind a proxy. Automatic certificates ignore
      # it.
      binds = @configuration.acme? ? @binds.grep(String) : @binds
      @configuration.binds.concat(binds.map { |bind| address_of(bind) })
    end

    def take_options
      @configuration.options.merge!(@settings.except(*@fixed))
    end

    def run_blocks
      kind = @configuration.workers.zero? ? :single : :cluster
      @blocks.fetch(kind).each { |block| instance_eval(&block) }
    rescue Failure
      raise
    rescue ScriptError, StandardError => e
      raise Failure, "cannot run the #{kind} block: #{e.message.lines.first&.chomp}"
    end

    # The text of a path or a Symbol, as Puma takes it. A Pathname counts as empty if its file is.
    def text_of(value)
      return value.to_path if value.respond_to?(:to_path)

      value.is_a?(Symbol) ? value.to_s : value
    end

    # A number, a time or a size, by the unit in the option's name.
    def quantity(option, value)
      case option
      when /_seconds(_max)?\z/ then Quantities.seconds(value)
      when /_bytes_/ then value.is_a?(String) ? Quantities.bytes(value) : Quantities.number(value)
      else Quantities.number(value)
      end
    end

    # Wraps a hook so that the hook also gets the Hash of its key.
    def with_data(block, key)
      raise ArgumentError, "a key must be a String or a Symbol" unless key.respond_to?(:to_sym)

      ->(argument = nil) { block.call(argument, @hook_data[key.to_sym]) }
    end

    def callable(object)
      return object if object.respond_to?(:call)

      raise ArgumentError, "expected a block or an object that responds to call"
    end

    def client_source_of(source)
      version = source[:proxy_protocol] if source.is_a?(Hash)
      version ? "proxy_#{version}" : FORWARDED.fetch(source, "socket")
    end

    def header_of(source)
      header = source.is_a?(Hash) && source[:header]
      return ["HTTP_#{header.upcase.tr("-", "_")}"] if header

      refuse("set_remote_address", "the source must be :socket, :localhost, :forwarded, " \
                                   ":x_forwarded_for, a String, a header: or " \
                                   "proxy_protocol:, not #{source.inspect}")
    end

    # Unknown directives are errors.
    def method_missing(word, *)
      hint = REMOVED.fetch(word, "docs/reference/serve_configuration.md lists all directives")
      raise Failure.new("#{place}: unknown directive #{word}", hint: hint)
    end

    def respond_to_missing?(*)
      false
    end

    def place
      here = caller_locations.find { |location| location.path == @path }
      here ? "#{@path}:#{here.lineno}" : @path.to_s
    end
  end
end

# The file is evaluated outside of `module Thruway`, so that constants in the file do not resolve to
# constants of the module.
class Thruway::ConfigurationFile
  # The directives that set an option. Plugins add further directives later.
  OPTION_WORDS = ([self, *included_modules - Object.included_modules].flat_map do |one|
    one.public_instance_methods(false)
  end - %i[get inject load warnings plugins? read]).freeze

  private

  # The file can see both parameters as local variables, so the names are unlikely to clash.
  def evaluate_text(text_of_file__, path_of_file__)
    instance_eval(text_of_file__, path_of_file__, 1)
  end
end
