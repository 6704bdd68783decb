# frozen_string_literal: true

require_relative "../support/failure"

module Thruway
  # The settings of a server by Puma's names of options, for plugins: `launcher.options`. An option
  # that this server lacks is an error, so that no plugin takes the option for unset.
  class PumaLauncherOptions
    # Puma's options whose name or form differs here.
    VALUES = {
      binds: ->(all) { all.addresses }, min_threads: ->(all) { all.threads_min },
      max_threads: ->(all) { all.threads }, preload_app: ->(all) { all.preload },
      control_url: ->(all) { all.control&.fetch(:uri) },
      control_auth_token: ->(all) { all.control&.fetch(:token) },
      control_data_only: ->(all) { all.control&.fetch(:data_only) },
      state: ->(all) { all.state_path }, restart_cmd: ->(all) { all.restart_words&.join(" ") },
      redirect_stdout: ->(all) { all.redirect&.fetch(:stdout) },
      redirect_stderr: ->(all) { all.redirect&.fetch(:stderr) },
      redirect_append: ->(all) { all.redirect&.fetch(:append) },
      bind_to_activated_sockets: ->(all) { all.activated_sockets },
      force_shutdown_after: ->(all) { all.drain_seconds },
      worker_timeout: ->(all) { all.worker_hang_seconds },
      worker_boot_timeout: ->(all) { all.worker_boot_seconds },
      worker_shutdown_timeout: ->(all) { all.worker_shutdown_seconds },
      worker_check_interval: ->(all) { all.worker_check_seconds },
      first_data_timeout: ->(all) { all.first_byte_seconds },
      persistent_timeout: ->(all) { all.keep_alive_seconds },
      http_content_length_limit: ->(all) { all.body_bytes_max },
      fork_worker: ->(all) { all.refork_after },
      supported_http_methods: ->(all) { all.methods || :any },
      remote_address: ->(all) { all.remote_address || all.client_source.to_sym },
      rack_url_scheme: ->(all) { all.url_scheme },
      mutate_stdout_and_stderr_to_sync_on_write: ->(all) { all.syncs_output },
      max_io_threads: ->(all) { all.max_io_threads }
    }.freeze

    # Puma's options whose names equal those of the settings.
    SAME = %i[workers environment rackup pidfile tag directory app log_requests early_hints
              state_permission lowlevel_error_handler shutdown_debug fiber_per_request].freeze

    # Puma's options with the same value in every server of Thruway.
    FIXED = {
      silence_single_worker_warning: true, silence_fork_callback_warning: true, debug: false,
      drain_on_shutdown: true, queue_requests: true, raise_exception_on_sigterm: false,
      prune_bundler: false, enable_keep_alives: true, logger: nil, custom_logger: nil, silent: false
    }.freeze

    # Puma's options without a value in this server.
    MISSING = %i[before_fork before_worker_boot before_worker_shutdown before_worker_fork
                 after_worker_fork after_worker_shutdown before_thread_start before_thread_exit
                 before_restart before_refork after_refork out_of_band max_fast_inline
                 max_keep_alive idle_timeout io_selector_backend worker_culling_strategy
                 wait_for_less_busy_worker config_files config_file reaping_time
                 auto_trim_time extra_runtime_dependencies].freeze

    # `added` are the options that plugins and their directives have set.
    def initialize(configuration, added)
      @configuration = configuration
      @added = added
    end

    def [](key) = fetch(key)

    # Returns the option, or the default if the option is not set.
    def fetch(key, default = nil)
      key = key.to_sym
      return value_of(key) if known?(key)
      return @added[key] if @added.key?(key)

      block_given? ? yield(key) : default
    end

    # Sets an option of the plugin itself. The options of the server are final when a plugin starts.
    def []=(key, value)
      if known?(key.to_sym)
        raise Failure, "a plugin cannot set options[#{key.inspect}] when it starts; " \
                       "set it in the configuration"
      end
      @added[key.to_sym] = value
    end

    def key?(key) = known?(key.to_sym) || @added.key?(key.to_sym)

    # Puma separates the user's options, the file's options and the defaults. Here, all are the
    # same.
    def user_options = self
    def file_options = self
    def default_options = self
    def final_options = to_h

    def all_of(key) = Array(fetch(key))

    def to_h
      [*VALUES.keys, *SAME, *FIXED.keys].to_h { |key| [key, value_of(key)] }.merge(@added)
    end

    private

    def known?(key)
      VALUES.key?(key) || SAME.include?(key) || FIXED.key?(key) || MISSING.include?(key)
    end

    def value_of(key)
      raise NoMethodError, "there is no option #{key.inspect} in Thruway" if MISSING.include?(key)
      return FIXED[key] if FIXED.key?(key)
      return VALUES[key].call(@configuration) if VALUES.key?(key)

      case key
      when :app, :directory then @configuration.options[key]
      else @configuration.public_send(key)
      end
    end
  end
end
