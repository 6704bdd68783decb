# frozen_string_literal: true

require_relative "../server/server"
require_relative "../support/failure"
require_relative "../support/redirection"
require_relative "builder"
require_relative "middleware"
require_relative "rails_isolation"
require_relative "runtime"

module Thruway
  # The Rack application that a server serves, from an object or from a rackup file.
  class Application
    # The option `app` takes precedence over the rackup file.
    def initialize(configuration)
      @configuration = configuration
      @given = configuration.options[:app]
      @rackup = File.expand_path(configuration.rackup)
    end

    # Raises `Failure` if there is no application to load.
    def check
      return if @given || File.file?(@rackup)

      raise Failure.new("there is no #{@rackup}",
                        hint: "name a config.ru, or a folder that contains one")
    end

    # Loads the application, once. The pack is saved at once, since a server may be killed.
    def load
      RailsIsolation.prepare(@configuration)
      @load ||= Middleware.around(@given || Builder.load(@rackup), @configuration).tap do
        RailsIsolation.check(@configuration)
        Redirection.fill
        # Before workers are forked: until a worker has its traps, a signal would end it while it
        # loads these libraries.
        Server.load_libraries
        Boot.save
        Runtime.enable_yjit(@configuration)
      end
    rescue Failure
      raise
    rescue ScriptError, StandardError => e
      raise Failure.new(explain(e), hint: "set THRUWAY_BACKTRACE=1 to see the backtrace")
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
