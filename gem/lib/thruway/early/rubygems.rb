# frozen_string_literal: true

# Traps signals before Ruby loads any file. RubyGems is the first feature that Ruby requires, and
# Ruby finds this file in its place. The file then requires RubyGems itself.

$LOAD_PATH.delete_if { |folder| folder.end_with?("/thruway/early") }
require_relative "../launch/early_signals"
require "rubygems" if defined?(Gem)
