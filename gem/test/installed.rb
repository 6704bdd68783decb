# frozen_string_literal: true

# Gems that a test requires. A Ruby that was built for a trial has few gems.
module Installed
  def self.gem?(name) = Gem::Specification.any? { |gem| gem.name == name }

  def skip_without(name)
    skip "#{name} is not installed for this Ruby" unless Installed.gem?(name)
  end
end
