# frozen_string_literal: true

# Redmine's own config/boot.rb, with bootsnap where it is wanted.
ENV["BUNDLE_GEMFILE"] ||= File.expand_path("Gemfile")
load ENV.fetch("BENCH_PRELUDE")
require "bundler/setup"
load ENV.fetch("BENCH_PRELUDE")
require File.expand_path("config/environment")
