# frozen_string_literal: true

# Takes signals before Ruby loads anything of its own: RubyGems is the first feature that it
# requires, and this is found in its place. Then RubyGems is loaded as always.

$LOAD_PATH.delete_if { |folder| folder.end_with?("/thruway/early") }
require_relative "../launch/early_signals"
require "rubygems" if defined?(Gem)
