# frozen_string_literal: true

# Where Thruway's gem is at hand, Ruby boots from a pack, which is kept in tmp; elsewhere as always.
require "fileutils"
FileUtils.mkdir_p(File.expand_path("../tmp", __dir__))
begin
  require "thruway/boot"
rescue LoadError
  nil
end
# Under `bundle exec` the gems of the Gemfile are used, otherwise those that are installed.
require "bundler/setup" if ENV["BUNDLE_GEMFILE"]
# Rails before 7.1 expects that it is loaded already.
require "logger"
