# frozen_string_literal: true

require_relative "configuration"

module Thruway
  # The words of a configuration file: those of Puma's that mean something here, and a few of our
  # own. Options of the command line go before the file.
  class ConfigurationFile
    # Puma's words for what this server does not do, or does by itself. They are passed over, with a
    # line that says so.
    PASSED_OVER = %i[
      activate_control_app bind_to_activated_sockets clean_thread_locals early_hints
      enable_keep_alives fork_worker io_selector_backend log_requests max_fast_inline
      max_keep_alive nakayoshi_fork on_restart out_of_band persistent_timeout_max plugin
      prune_bundler queue_requests quiet raise_exception_on_sigterm redirect_append
      rewrite_state restart_command set_remote_address silence_single_worker_warning
      silence_fork_callback_warning ssl_bind state_path state_permission stdout_redirect
      supported_http_methods tag wait_for_less_busy_worker worker_check_interval
      worker_culling_strategy worker_timeout
    ].freeze

    # Puma's names for hooks, old and new, and ours.
    HOOKS = {
      before_fork: :before_fork, on_worker_boot: :before_worker_boot,
      before_worker_boot: :before_worker_boot, on_worker_shutdown: :before_worker_shutdown,
      before_worker_shutdown: :before_worker_shutdown, on_worker_fork: :before_worker_fork,
      before_worker_fork: :before_worker_fork, after_worker_fork: :after_worker_fork,
      after_worker_boot: :after_worker_fork, on_booted: :after_booted, after_booted: :after_booted
    }.freeze

    # Words with one value, and the option that it is.
    VALUES = {
      environment: :environment, rackup: :rackup, pidfile: :pidfile, directory: :directory,
      force_shutdown_after: :drain_seconds, worker_shutdown_timeout: :worker_shutdown_seconds,
      worker_boot_timeout: :worker_boot_seconds, first_data_timeout: :first_byte_seconds,
      persistent_timeout: :keep_alive_seconds, head_timeout: :head_seconds,
      body_timeout: :body_seconds, write_timeout: :write_seconds,
      request_timeout: :request_seconds, http_content_length_limit: :body_bytes_max,
      response_memory_limit: :response_memory_bytes_max,
      worker_memory_limit: :worker_memory_bytes_max,
      response_file_limit: :response_file_bytes_max,
      write_rate_min: :write_bytes_per_second_min
    }.freeze

    attr_reader :passed_over

    def initialize(configuration)
      @configuration = configuration
      @binds = []
      @passed_over = []
    end

    # Reads the file at `path`.
    def read(path)
      instance_eval(File.read(path), path, 1)
      @configuration.binds.concat(@binds) if @configuration.binds.empty? && !port_was_said?
      self
    rescue Failure
      raise
    rescue ScriptError, StandardError => e
      place = e.backtrace&.find { |line| line.start_with?(path) } || e.class
      raise Failure, "cannot read #{path}: #{e.message.lines.first&.chomp} (#{place})"
    end

    VALUES.each do |word, option|
      define_method(word) { |value| @configuration.offer(option, value) }
    end

    HOOKS.each do |word, hook|
      define_method(word) { |*, &block| @configuration.hooks.fetch(hook) << block }
    end

    PASSED_OVER.each do |word|
      define_method(word) { |*, **, &_block| @passed_over |= [word] }
    end

    def workers(count)
      count = Etc.nprocessors if count.to_s == "auto"
      @configuration.offer(:workers, Integer(count))
    end

    # All threads run from the start, so only the larger number counts.
    def threads(min, max = min)
      @configuration.offer(:threads, [Integer(min), Integer(max)].max)
    end

    def port(number, host = nil)
      @configuration.offer(:host, host) if host
      @configuration.offer(:port, Integer(number))
    end

    def bind(address)
      @binds << address
    end

    def preload_app!(answer = true)
      @configuration.offer(:preload, answer)
    end

    def app(object = nil, &block)
      @configuration.offer(:app, object || block)
    end

    def lowlevel_error_handler(object = nil, &block)
      @configuration.offer(:lowlevel_error_handler, object || block)
    end

    # Lets the application have files beneath `folder` sent, by X-Sendfile with their paths or by
    # X-Accel-Redirect with paths that begin with `as`.
    def sendfile(folder, as: nil)
      folder = File.expand_path(folder)
      @configuration.sendfile << [as || folder, folder]
    end

    private

    def port_was_said?
      @configuration.options.key?(:port)
    end
  end
end
