# frozen_string_literal: true

ENV["BUNDLE_GEMFILE"] ||= File.expand_path("../Gemfile", __dir__)
load ENV.fetch("BENCH_PRELUDE")
require "bundler/setup"
load ENV.fetch("BENCH_PRELUDE")
require "logger"
