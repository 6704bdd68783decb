# frozen_string_literal: true

require_relative "../application/application"
require_relative "../application/database_pools"
require_relative "../support/json"

module Thruway
  # Boots an application without serving it, for `thruway doctor`. Prints the findings as JSON: an
  # Array of checks.
  class Checkup
    # Runs the checks with the application's own output on stderr, so that stdout contains only the
    # checks. The process ends without the application's exit handlers.
    def self.run(&configure)
      output = $stdout.dup
      $stdout.reopen($stderr)
      output.write(Json.generate(new(&configure).checks))
      output.flush
      exit!(0)
    end

    # The block returns the configuration, or raises `Failure`.
    def initialize(&configure)
      @configure = configure
    end

    def checks
      configuration = @configure.call
      configuration.check
      configuration.enter
      Application.new(configuration).tap(&:check).load
      ActiveRecord::Base if DatabasePools.awaits_active_record?
      [["application", "ok", "it boots as #{configuration.environment}", nil],
       *pools(configuration)]
    rescue Failure => e
      cure = e.hint || "thruway serve shows the whole error"
      [["application", "no", "#{Dir.pwd}: #{e.message}", cure]]
    end

    private

    def pools(configuration)
      pools = DatabasePools.new(configuration)
      warnings = pools.warnings
      small = warnings.map { |text, cure| ["database pool", "less", text, cure] }
      return small if small.any? || pools.libraries.empty?

      [["database pool", "ok", "#{pools.libraries.join(" and ")}: #{pools.praise}", nil]]
    end
  end
end
