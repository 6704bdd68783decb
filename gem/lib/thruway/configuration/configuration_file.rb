# frozen_string_literal: true

require_relative "../server/origins"
require_relative "../support/processors"
require_relative "../support/shell_words"
require_relative "configuration"
require_relative "listen_directives"
require_relative "puma_names"
require_relative "puma_options"
require_relative "unsupported_directives"

module Thruway
  # The words of a configuration file: all of Puma's, and a few of our own. Each does what it does
  # there, is refused, or is passed over with a line that says what happens instead; see
  # `docs/reference/serve_configuration.md`. Options of the command line go before the file; in it,
  # what is said last.
  class ConfigurationFile
    include ListeningWords
    include OtherWords

    # Files from the time of Puma 3 to 5 name it so, as Heroku's guide did.
    DefaultRackup = "config.ru"

    # Puma's module, as files name it.
    Puma = PumaNames

    # Puma's names for hooks, old and new, and ours.
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

    # Hooks that may have a key. Hooks with the same key share a Hash.
    KEYED = %i[before_worker_boot before_worker_shutdown before_refork after_refork].freeze

    # Words with one value, and the option that it is.
    VALUES = {
      environment: :environment, rackup: :rackup, pidfile: :pidfile, directory: :directory,
      rack_url_scheme: :url_scheme, tag: :tag, health_check: :health_check, state_path: :state_path,
      state_permission: :state_permission, agent_check: :agent_check
    }.freeze

    # Words whose value is a number, and the option that it is.
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
      worker_timeout: :worker_hang_seconds, worker_check_interval: :worker_check_seconds,
      worker_max_requests: :worker_requests_max, worker_max_mb: :worker_megabytes_max,
      worker_max_age: :worker_age_seconds_max
    }.freeze

    # Words that Puma has dropped, and what stands for them.
    FORMER = {
      daemonize: "Puma 5 has dropped it: start the server as a service, as by systemd",
      tcp_mode: "Puma 5 has dropped it: leave it out",
      tcp_mode!: "Puma 5 has dropped it: leave it out",
      worker_directory: "Puma 3 has dropped it: say directory",
      prune_bundler!: "say prune_bundler, or leave it out"
    }.freeze

    # The largest of them: seconds are counted in milliseconds, within 64 bits.
    NUMBER_MAX = 10**15

    # Words that are true unless they say otherwise, and the option that they are.
    SWITCHES = {
      preload_app!: :preload, fiber_per_request: :fiber_per_request,
      clean_thread_locals: :fiber_per_request, yjit: :yjit, warm_up: :warm_up,
      nakayoshi_fork: :warm_up,
      mutate_stdout_and_stderr_to_sync_on_write: :syncs_output, status_page: :status_page,
      early_hints: :early_hints, load_report: :load_report,
      socket_compression: :socket_compression, http2: :http2,
      http2_sockets: :http2_sockets
    }.freeze

    # Fields in which trusted proxies name their clients.
    FORWARDED = { forwarded: "forwarded", x_forwarded_for: "x_forwarded_for" }.freeze

    # What Puma calls our options, where `get` asks for them.
    PUMA_OPTIONS = {
      max_threads: :threads, min_threads: :threads, preload_app: :preload,
      force_shutdown_after: :drain_seconds, first_data_timeout: :first_byte_seconds,
      persistent_timeout: :keep_alive_seconds, http_content_length_limit: :body_bytes_max
    }.merge(VALUES, NUMBERS).freeze

    # The files that are looked for, in their order, in the current folder.
    def self.names(environment)
      ["config/thruway.rb", "config/puma/#{environment}.rb", "config/puma.rb"]
    end

    # Reads the file at `path`, or the first of the usual ones. With `-` none is read.
    def self.take(configuration, path = nil)
      path ||= names(configuration.environment).find { |name| File.file?(name) }
      return if path.nil? || path == "-"

      file = new(configuration).read(File.expand_path(path))
      file.passed_over.each { |line| warn "thruway: #{line}" }
    end

    def initialize(configuration)
      @configuration = configuration
      # The command line's own.
      @fixed = configuration.options.keys
      @said = {}
      @binds = []
      @metrics = []
      @blocks = { single: [], cluster: [] }
      @hook_data = Hash.new { |all, key| all[key] = {} }
      # Puma's name for it, which real files use.
      @options = PumaOptions.new(self, @binds)
    end

    # Reads the file at `path`, and those that it names.
    def read(path)
      evaluate(path)
      finish
      self
    end

    VALUES.each do |word, option|
      define_method(word) { |value = nil| @said[option] = value }
    end

    NUMBERS.each do |word, option|
      define_method(word) do |value|
        number = value.is_a?(Integer) ? value : Float(value)
        raise ArgumentError, "#{word} takes 0 to #{NUMBER_MAX}, not #{number}" unless
          (0..NUMBER_MAX).cover?(number)

        @said[option] = number
      end
    end

    SWITCHES.each do |word, option|
      define_method(word) { |answer = true| @said[option] = answer }
    end

    HOOKS.each do |word, hook|
      define_method(word) do |*keys, &block|
        raise ArgumentError, "#{word} takes a block" unless block

        block = with_data(block, *keys) if KEYED.include?(hook) && keys.any?
        raise ArgumentError, "#{word} takes no key" if keys.any? && !KEYED.include?(hook)

        @configuration.hooks.fetch(hook) << block
      end
    end

    # Lines as Puma writes them, or `:json`.
    def log_requests(answer = true)
      raise ArgumentError, "log_requests takes true, false or :json" unless
        [true, false, nil, :json].include?(answer)

      @said[:log_requests] = answer
    end

    # What becomes of each line of `log_requests`.
    def log_formatter(&block)
      @said[:log_formatter] = callable(block)
    end

    # Compresses responses: all, or those that belong to no user.
    def compress(which = true)
      raise ArgumentError, "compress takes true, false or :all" unless
        [true, false, nil, :all].include?(which)

      @said[:compress] = which
    end

    # Where assets are that have digests in their names.
    def immutable_assets(folder = "/assets")
      raise ArgumentError, "immutable_assets takes a path that begins with /" unless
        !folder || folder.to_s.start_with?("/")

      @said[:immutable_assets] = folder
    end

    # The pages that may open WebSockets, beside those of the same host: `:any`, or origins.
    def socket_origins(*origins)
      origins.flatten!
      unknown = origins.reject { |origin| Origins.known?(origin) }
      unless unknown.empty? || origins == [:any]
        refuse("socket_origins", "no page is from #{unknown.first.inspect}: a browser sends " \
                                 "a scheme, a host in lower case, and a port unless it is usual",
               'say "https://shop.example", a Regexp, or :any alone')
      end
      @said[:socket_origins] = unknown.empty? ? origins : :any
    end

    def quiet(answer = true)
      @said[:log_requests] = !answer
    end

    def workers(count)
      count = Processors.count if count.to_s == "auto"
      @said[:workers] = Integer(count || 0)
    end

    # After so many requests of one worker, workers are forked from it; never by itself if it is 0.
    def fork_worker(requests = 1000)
      @said[:refork_after] = Integer(requests)
    end

    # All threads run from the start, so only the larger number counts.
    def threads(min, max = min)
      @said[:threads] = [Integer(min), Integer(max)].max
    end

    # What is run instead of the command that started the server.
    def restart_command(command)
      @said[:restart_words] = ShellWords.split(command.to_s)
    end

    def app(object = nil, &block)
      @said[:app] = callable(object || block)
    end

    def lowlevel_error_handler(object = nil, &block)
      @said[:lowlevel_error_handler] = callable(object || block)
    end

    def force_shutdown_after(seconds = :forever)
      words = { forever: nil, immediately: 0 }
      @said[:drain_seconds] = words.fetch(seconds) { Float(seconds) }
    end

    # None is no limit, as it is for Puma.
    def http_content_length_limit(bytes)
      @said[:body_bytes_max] = bytes ? Integer(bytes) : Configuration::NO_LIMIT
    end

    def stdout_redirect(stdout = nil, stderr = nil, append = false)
      @said[:redirect] = { stdout: stdout, stderr: stderr, append: append }
    end

    def shutdown_debug(answer = true, on_force: false)
      @said[:shutdown_debug] = answer && on_force ? :on_force : answer
    end

    def supported_http_methods(methods)
      known = methods == :any || (methods.is_a?(Array) && methods.any? &&
                                  methods.all?(String) && methods.uniq == methods)
      raise ArgumentError, "the methods are :any or different Strings" unless known

      @said[:methods] = methods == :any ? nil : methods
    end

    # Where a request's client is learned from.
    def set_remote_address(source = :socket)
      @said[:client_source] = client_source_of(source)
      @said[:remote_address] =
        case source
        when :socket, *FORWARDED.keys, { proxy_protocol: :v1 }, { proxy_protocol: :v2 } then nil
        when :localhost then "127.0.0.1"
        when String then source
        else header_of(source)
        end
    end

    # Addresses and networks that are believed as proxies.
    def trusted_proxies(*addresses)
      @said[:trusted_proxies] = addresses.flatten.join(",")
    end

    # What takes turns: `:connection`, `:address`, or clients that a proxy names in `header`.
    def fair_by(kind = nil, header: nil)
      kinds = %i[connection address]
      unless kinds.include?(kind) ^ header.is_a?(String)
        raise ArgumentError, "fair_by takes :connection, :address or a header:"
      end

      @said[:fair_by] = header ? "header:#{header}" : kind.to_s
    end

    # Lets the application have files beneath `folder` sent, by X-Sendfile with their paths or by
    # X-Accel-Redirect with paths that begin with `as`.
    def sendfile(folder, as: nil)
      folder = File.expand_path(folder)
      @configuration.sendfile << [as || folder, folder]
    end

    # Code for servers of one process, or with workers: it runs when the files are read.
    def single(&block)
      @blocks[:single] << block
    end

    def cluster(&block)
      @blocks[:cluster] << block
    end

    def inject(&block)
      instance_eval(&block)
    end

    def get(key, default = nil)
      option = PUMA_OPTIONS.fetch(key.to_sym, key.to_sym)
      @configuration.options.fetch(option) { @said.fetch(option, default) }
    end

    # Whether the file names plugins, whose words and options are not known here.
    def plugins? = @configuration.plugins.any?

    # Another file, where this one stands.
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
      raise Failure, "cannot read #{path}: #{e.message.lines.first&.chomp} (#{place})"
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

      @configuration.binds.concat(@binds.map { |bind| address_of(bind) })
    end

    def take_options
      @configuration.options.merge!(@said.except(*@fixed))
    end

    def run_blocks
      kind = @configuration.workers.zero? ? :single : :cluster
      @blocks.fetch(kind).each { |block| instance_eval(&block) }
    rescue Failure
      raise
    rescue ScriptError, StandardError => e
      raise Failure, "cannot read the block of #{kind}: #{e.message.lines.first&.chomp}"
    end

    # For a hook that is given the Hash of its key, too.
    def with_data(block, key)
      raise ArgumentError, "a key is a String or a Symbol" unless key.respond_to?(:to_sym)

      ->(argument = nil) { block.call(argument, @hook_data[key.to_sym]) }
    end

    def callable(object)
      return object if object.respond_to?(:call)

      raise ArgumentError, "it takes a block, or what can be called"
    end

    def client_source_of(source)
      version = source[:proxy_protocol] if source.is_a?(Hash)
      version ? "proxy_#{version}" : FORWARDED.fetch(source, "socket")
    end

    def header_of(source)
      header = source.is_a?(Hash) && source[:header]
      return ["HTTP_#{header.upcase.tr("-", "_")}"] if header

      refuse("set_remote_address", "it takes :socket, :localhost, :forwarded, " \
                                   ":x_forwarded_for, a String, a header: or " \
                                   "proxy_protocol:, and not #{source.inspect}")
    end

    # A word that Puma does not know either, or no longer.
    def method_missing(word, *)
      hint = FORMER.fetch(word, "docs/reference/serve_configuration.md has them all")
      raise Failure.new("#{place} has #{word}, which is no word of a configuration", hint: hint)
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

# Outside of our module, so that a file's constants are not taken for ours.
class Thruway::ConfigurationFile
  # Words that set an option. Plugins add others later.
  OPTION_WORDS = ([self, *included_modules - Object.included_modules].flat_map do |one|
    one.public_instance_methods(false)
  end - %i[get inject load passed_over plugins? read]).freeze

  private

  # The file sees these two variables, which have names that it does not use.
  def evaluate_text(text_of_file__, path_of_file__)
    instance_eval(text_of_file__, path_of_file__, 1)
  end
end
