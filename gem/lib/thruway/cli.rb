# frozen_string_literal: true

require_relative "configuration/configuration_file"
require_relative "launch/launcher"

module Thruway
  # `thruway serve config.ru`, from where Ruby begins. The binary has read the arguments already,
  # and hands them on in this form.
  class CLI
    # Options whose value is a number, and what they set.
    NUMBERS = { "--port" => :port,
                "--request-line-limit" => :request_line_bytes_max,
                "--head-limit" => :head_bytes_max,
                "--head-fields-limit" => :head_fields_max }.freeze

    # Options without a value, and what they set.
    SWITCHES = { "--status" => [:status_page, true], "--no-http2" => [:http2, false] }.freeze

    # Other options, and the methods that take their values.
    ACTIONS = { "--bind" => :take_bind, "--threads" => :take_threads,
                "--workers" => :take_workers,
                "--environment" => :take_environment, "--config" => :take_config,
                "--pidfile" => :take_pidfile, "--fair-by" => :take_fair_by,
                "--metrics" => :take_metrics, "--sendfile" => :take_sendfile,
                "--started-us" => :take_start, "--command" => :take_command }.freeze

    # Runs to the end, and answers with the exit status.
    def self.run(arguments)
      new(arguments).run
      0
    rescue Failure => e
      e.report
    end

    # `folder` is where it was started: a link in it may lead elsewhere when it is read again.
    def initialize(arguments, folder: HotRestart.logical_folder)
      @arguments = arguments
      @folder = folder
      @configuration = Configuration.new
      @file = nil
      @words = []
      @started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @target = parse(arguments)
    end

    def run
      restart = HotRestart.of_this_process(@words.empty? ? nil : @words, folder: @folder)
      configure
      again = -> { reread }
      Launcher.new(@configuration, name: name, started: @started, restart: restart, reread: again)
              .run
    end

    # What is served, and how.
    def configure
      enter(name)
      read_file
      @configuration
    end

    private

    def name = @target || "."

    # What the same command would be told now.
    def reread
      Dir.chdir(@folder)
      CLI.new(@arguments, folder: @folder).configure
    end

    # Goes to the application's folder: what it says about paths is meant from there.
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
      ConfigurationFile.take(@configuration, @file)
    end

    # The binary has checked them: each option is in its long form, and its value is a word.
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
      elsif (action = ACTIONS[option])
        send(action, value)
      else
        raise Failure, "there is no option #{option}"
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
      @started = Integer(time_us, 10) / 1e6
    end

    def take_workers(count)
      @configuration.options[:workers] =
        count == "auto" ? Processors.count : Integer(count, 10)
    end

    # Of `MIN:MAX` the larger number counts.
    def take_threads(text)
      raise Failure, "invalid argument: --threads #{text}" unless text.match?(/\A\d+(:\d+)?\z/)

      @configuration.options[:threads] = text.split(":").last.to_i
    end

    def take_environment(name)
      @configuration.options[:environment] = name
      ENV["RAILS_ENV"] = name
    end

    # `DIR`, or `/prefix=DIR`.
    def take_sendfile(text)
      prefix, folder = text.include?("=") ? text.split("=", 2) : [nil, text]
      folder = File.expand_path(folder)
      raise Failure, "cannot declare #{folder}: it is no folder" unless File.directory?(folder)

      @configuration.sendfile << [prefix || folder, folder]
    end
  end
end
