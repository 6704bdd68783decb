# frozen_string_literal: true

require "optparse"

require_relative "configuration_file"
require_relative "launcher"

module Thruway
  # `thruway serve config.ru`, from where Ruby begins. The binary has read the arguments already,
  # and hands them on in this form.
  class CLI
    FILES = ["config/thruway.rb", "config/puma.rb"].freeze

    # Runs to the end, and answers with the exit status.
    def self.run(arguments)
      catch(:exit) do
        new(arguments).run
        0
      end
    rescue Failure => e
      e.report
    rescue OptionParser::ParseError => e
      Failure.new(e.message).report
    end

    # `folder` is where it was started: a link in it may lead elsewhere when it is read again.
    def initialize(arguments, folder: HotRestart.logical_folder)
      @arguments = arguments
      @folder = folder
      @configuration = Configuration.new
      @file = nil
      @words = []
      @started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @target, = parser.parse(arguments)
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
      path = @file || FILES.find { |candidate| File.file?(candidate) }
      return if path.nil? || path == "-"

      file = ConfigurationFile.new(@configuration).read(File.expand_path(path))
      file.passed_over.each { |line| warn "thruway: #{line}" }
    end

    def parser
      options = @configuration.options
      OptionParser.new do |parser|
        parser.on("--port PORT", Integer) { |port| options[:port] = port }
        parser.on("--bind URI") { |uri| @configuration.binds << uri }
        parser.on("--workers N", Integer) { |count| options[:workers] = count }
        parser.on("--threads N", /\d+(:\d+)?/) { |text, _| take_threads(text) }
        parser.on("--environment NAME") { |name| take_environment(name) }
        parser.on("--config FILE") { |path| @file = path == "-" ? path : File.expand_path(path) }
        parser.on("--pidfile PATH") { |path| options[:pidfile] = File.expand_path(path) }
        add_limits(parser, options)
        parser.on("--fair-by KIND") { |kind| options[:fair_by] = kind }
        parser.on("--metrics URI") { |uri| @configuration.metrics << uri }
        parser.on("--status") { options[:status_page] = true }
        parser.on("--no-http2") { options[:http2] = false }
        parser.on("--sendfile DIR") { |folder| declare(folder) }
        parser.on("--started-us N", Integer) { |time| @started = time / 1e6 }
        parser.on("--command WORD") { |word| @words << word }
      end
    end

    def add_limits(parser, options)
      { "--request-line-limit BYTES" => :request_line_bytes_max,
        "--head-limit BYTES" => :head_bytes_max, "--head-fields-limit N" => :head_fields_max }
        .each { |option, name| parser.on(option, Integer) { |number| options[name] = number } }
    end

    # Of `MIN:MAX` the larger number counts.
    def take_threads(text)
      @configuration.options[:threads] = text.split(":").last.to_i
    end

    def take_environment(name)
      @configuration.options[:environment] = name
      ENV["RAILS_ENV"] = name
    end

    # `DIR`, or `/prefix=DIR`.
    def declare(text)
      prefix, folder = text.include?("=") ? text.split("=", 2) : [nil, text]
      folder = File.expand_path(folder)
      raise Failure, "cannot declare #{folder}: it is no folder" unless File.directory?(folder)

      @configuration.sendfile << [prefix || folder, folder]
    end
  end
end
