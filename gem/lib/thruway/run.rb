# frozen_string_literal: true

# For a Ruby below `thruway run` that does without RubyGems.
load "#{__dir__}/first/rubygems.rb"
