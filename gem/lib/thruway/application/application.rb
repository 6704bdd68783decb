# frozen_string_literal: true

require_relative "../server/server"
require_relative "../support/failure"
require_relative "../support/redirection"
require_relative "builder"
require_relative "middleware"
require_relative "runtime"

module Thruway
  # What is served: a Rack application, wherever it comes from.
  class Application
    # The configuration may name an existing application; otherwise it comes from a rackup file.
    def initialize(configuration)
      @configuration = configuration
      @given = configuration.options[:app]
      @rackup = File.expand_path(configuration.rackup)
    end

    # Whether there is something to load, before anything is loaded.
    def check
      return if @given || File.file?(@rackup)

      raise Failure.new("there is no #{@rackup}",
                        hint: "name a config.ru, or a folder that has one")
    end

    # Loads the application, once. What its boot has learned is kept now: a server may be killed.
    def load
      @load ||= Wrapping.around(@given || Builder.load(@rackup), @configuration).tap do
        Redirection.fill
        # Before workers are forked: they have no traps yet while they load something.
        Server.load_libraries
        Boot.save
        Runtime.enable_yjit(@configuration)
      end
    rescue Failure
      raise
    rescue ScriptError, StandardError => e
      raise Failure.new(explain(e), hint: "THRUWAY_BACKTRACE=1 shows where it came from")
    end

    private

    def explain(error)
      warn error.full_message if ENV["THRUWAY_BACKTRACE"]
      place = error.backtrace&.find { |line| line.start_with?(File.dirname(@rackup)) }
      place ||= error.backtrace&.first
      message = error.message.lines.first&.chomp
      Failure.text("the application raised ", error.class, " at boot: ", message, " (", place, ")")
    end
  end
end
