# frozen_string_literal: true

require_relative "configuration/configuration_file"
require_relative "configuration/thruster_variables"
require_relative "launch/checkup"
require_relative "launch/launcher"

module Thruway
  # The Ruby part of `thruway serve config.ru`. The binary has already checked the arguments, and
  # passes them on in their long form.
  class CLI
    # Options whose value is a number, and the settings that they change.
    NUMBERS = { "--port" => :port, "--waiting-threads" => :waiting_threads,
                "--fibers" => :fibers,
                "--request-line-limit" => :request_line_bytes_max,
                "--head-limit" => :head_bytes_max,
                "--head-fields-limit" => :head_fields_max, "--cache" => :cache_bytes_max,
                "--cache-item-limit" => :cache_item_bytes_max,
                "--https-port" => :https_port, "--hsts" => :hsts_seconds }.freeze

    # Options whose value is a text, and the settings that they change.
    TEXTS = { "--acme-directory" => :acme_directory, "--acme-eab-kid" => :acme_eab_kid,
              "--https-redirect" => :https_redirect, "--program" => :program }.freeze

    # Options whose value is a path in the folder of the command.
    PATHS = { "--acme-ca" => :acme_ca, "--acme-eab-key-file" => :acme_eab_key_file,
              "--acme-storage" => :acme_storage }.freeze

    # Options that may be repeated, and the settings that collect their values.
    LISTS = { "--acme-domain" => :acme_domains, "--acme-contact" => :acme_contacts,
              "--acme-challenge" => :acme_challenges }.freeze

    # Options without a value, and the settings that they change.
    SWITCHES = { "--status" => [:status_page, true], "--no-http2" => [:http2, false] }.freeze

    # The other options, and the methods that take their values.
    ACTIONS = { "--bind" => :take_bind, "--threads" => :take_threads,
                "--workers" => :take_workers,
                "--environment" => :take_environment, "--config" => :take_config,
                "--pidfile" => :take_pidfile, "--fair-by" => :take_fair_by,
                "--metrics" => :take_metrics, "--sendfile" => :take_sendfile,
                "--started-us" => :take_start, "--command" => :take_command }.freeze

    # Runs the server to its end. Returns the exit status.
    def self.run(arguments)
      new(arguments).run
      0
    rescue Failure => e
      e.report
    end

    # Boots the application of the current folder as the server would, and prints checks of the
    # boot.
    def self.check_up
      Checkup.run { new(["--", "."]).configure }
    end

    # `folder` is the folder in which the command was started. Its name may contain symbolic links,
    # which lead to the new release after a deployment.
    def initialize(arguments, folder: HotRestart.logical_folder)
      @arguments = arguments
      @folder = folder
      @configuration = Configuration.new
      @file = nil
      @words = []
      @started_at = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @target = parse(arguments)
    end

    def run
      restart = HotRestart.of_this_process(@words.empty? ? nil : @words, folder: @folder)
      configure
      Launcher.new(@configuration, name: name, started_at: @started_at, restart: restart,
                                   reread: -> { reread }).run
    end

    # Returns the configuration of the command line and the configuration file.
    def configure
      enter(name)
      read_file
      @configuration
    end

    private

    def name = @target || "."

    # Returns the configuration that the same command would have now.
    def reread
      Dir.chdir(@folder)
      CLI.new(@arguments, folder: @folder).configure
    end

    # Changes to the application's folder, to which relative paths of the application refer.
    def enter(target)
      if File.directory?(target)
        Dir.chdir(target)
      else
        @configuration.offer(:rackup, File.expand_path(target))
        folder = File.dirname(target)
        Dir.chdir(folder) if File.directory?(folder)
      end
    end

    def read_file
      ENV["RACK_ENV"] = @configuration.environment
      ThrusterVariables.new(@configuration).apply { |line| warn "thruway: #{line}" }
      ConfigurationFile.take(@configuration, @file)
    end

    # Each option is in its long form, and its value is a separate word.
    def parse(arguments)
      words = arguments.dup
      while (option = words.shift) && option != "--"
        SWITCHES.key?(option) ? switch(*SWITCHES[option]) : take(option, words.shift)
      end
      words.first
    end

    def switch(name, value)
      @configuration.options[name] = value
    end

    def take(option, value)
      options = @configuration.options
      if NUMBERS.key?(option)
        options[NUMBERS[option]] = Integer(value, 10)
      elsif TEXTS.key?(option)
        options[TEXTS[option]] = value
      elsif PATHS.key?(option)
        options[PATHS[option]] = File.expand_path(value)
      elsif LISTS.key?(option)
        options[LISTS[option]] = [*options[LISTS[option]], value]
      elsif (action = ACTIONS[option])
        send(action, value)
      else
        raise Failure, "unknown option: #{option}"
      end
    end

    def take_bind(uri) = @configuration.binds << uri

    def take_metrics(uri) = @configuration.metrics << uri

    def take_command(word) = @words << word

    def take_config(path)
      @file = path == "-" ? path : File.expand_path(path)
    end

    def take_pidfile(path)
      @configuration.options[:pidfile] = File.expand_path(path)
    end

    def take_fair_by(kind)
      @configuration.options[:fair_by] = kind
    end

    def take_start(time_us)
      @started_at = Integer(time_us, 10) / 1e6
    end

    def take_workers(count)
      @configuration.options[:workers] =
        count == "auto" ? Processors.count : Integer(count, 10)
    end

    def take_threads(text)
      unless text.b.match?(/\A\d+(:\d+)?\z/)
        raise Failure.new("#{text.dump} is not a number of threads",
                          hint: "write --threads 5, or --threads 1:5 for 1 to 5 threads")
      end

      least, most = text.split(":").map(&:to_i).minmax
      @configuration.options.update(threads: most, threads_min: least)
    end

    def take_environment(name)
      @configuration.options[:environment] = name
      ENV["RAILS_ENV"] = name
    end

    # Takes `DIR` or `/prefix=DIR`.
    def take_sendfile(text)
      at = text.index("=")
      prefix, folder = at ? [text[...at], text[(at + 1)..]] : [nil, text]
      unless File.directory?(folder) || folder.empty?
        raise Failure, Failure.text("cannot declare ", folder, ": not a folder")
      end

      @configuration.declare(folder, as: prefix)
    end
  end
end
