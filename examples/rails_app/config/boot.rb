# frozen_string_literal: true

# Under `bundle exec` the gems of the Gemfile are used, otherwise those that are installed.
require "bundler/setup" if ENV["BUNDLE_GEMFILE"]
# Rails before 7.1 expects that somebody else has loaded it.
require "logger"
