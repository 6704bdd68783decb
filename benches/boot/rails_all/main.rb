# frozen_string_literal: true

# All of Rails, loaded at once, with the gems that Bundler chooses.
ENV["RAILS_ENV"] = "production"
ENV["BUNDLE_GEMFILE"] = "#{__dir__}/Gemfile"
load ENV["BENCH_PRELUDE"] if ENV["BENCH_PRELUDE"]
require "bundler/setup"
load ENV["BENCH_PRELUDE"] if ENV["BENCH_PRELUDE"]
require "logger"
require "rails/all"

# An application without a line of its own.
class Everything < Rails::Application
  config.load_defaults 6.1
  config.eager_load = true
  config.root = __dir__
  config.secret_key_base = "x" * 64
  config.logger = Logger.new(nil)
  config.active_storage.service = :local
end

Rails.application.initialize!
abort "only #{$LOADED_FEATURES.size} features" if $LOADED_FEATURES.size < 1500
puts $LOADED_FEATURES if ARGV.include?("--features")
